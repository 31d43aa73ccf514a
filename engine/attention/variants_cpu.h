// The CPU's rows of the variant table, one header for all: each kernel's *_cpu.cc defines its own.
#pragma once

#include <span>

#include "engine/attention/variants.h"

namespace castor::attention {

std::span<const Variant> VanillaCpuVariants();
std::span<const Variant> ClusteredCpuVariants();
std::span<const Variant> CastCpuVariants();

}  // namespace castor::attention
