// The instruction sets that this processor and its operating system offer. Any thread.
#pragma once

namespace castor::kernels {

bool HasAvx2();        // with FMA and F16C
bool HasAvx512();      // F, BW, DQ and VL
bool HasAvx512Bf16();  // these, and products of bfloat16
bool HasAvx512Vnni();  // these, and products of bytes

// True if the processor's products of bfloat16 beat widening both sides for products of float32: on
// AMD's a model runs 1.8 times as fast; on an Intel without AMX it ran at 0.69 of float32's speed.
bool HasFastBFloat16Products();

}  // namespace castor::kernels
