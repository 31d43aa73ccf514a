// The CPU's rows of the variant table, one header for all: each kernel's *_cpu.cc defines its own.
#pragma once

#include <cstdint>
#include <span>

#include "engine/attention/variants.h"

namespace castor::attention {

std::span<const Variant> VanillaCpuVariants();
std::span<const Variant> ClusteredCpuVariants();
std::span<const Variant> CastCpuVariants();

// How many of the heads that share keys and values vanilla attention goes through as one head of so
// many more queries. `spec.kernel` holds Vanilla.
int64_t HeadsTogether(const Spec& spec);

}  // namespace castor::attention
