// Which instruction sets this processor and its operating system offer. Any thread.
#pragma once

namespace castor::kernels {

bool HasAvx2();    // with FMA and F16C
bool HasAvx512();  // F, BW, DQ and VL

}  // namespace castor::kernels
