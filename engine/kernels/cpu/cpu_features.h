// Which instruction sets this processor and its operating system offer. Any thread.
#pragma once

namespace castor::kernels {

bool HasAvx2();        // with FMA and F16C
bool HasAvx512();      // F, BW, DQ and VL
bool HasAvx512Bf16();  // these, and products of bfloat16
bool HasAvx512Vnni();  // these, and products of bytes

}  // namespace castor::kernels
