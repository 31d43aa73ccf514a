// A test parameterised over rows of the CPU's variant table.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "engine/attention/variants.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/seeded.h"

namespace castor::attention {

inline std::vector<Variant> CpuRows(std::initializer_list<KernelName> kernels) {
  std::vector<Variant> rows;
  for (const Variant& row : CpuVariants()) {
    if (std::find(kernels.begin(), kernels.end(), row.kernel) != kernels.end()) rows.push_back(row);
  }
  return rows;
}

inline std::string NameOfRow(const testing::TestParamInfo<Variant>& info) {
  std::string name = std::string(NameOf(info.param.kernel)) + "_" + std::string(info.param.backend);
  std::erase(name, '-');
  return name;
}

class VariantTest : public testing::TestWithParam<Variant>, protected Seeded {
 protected:
  void SetUp() override {
    const KernelName name = GetParam().kernel;
    const Kernel kernel = name == KernelName::kClustered           ? Kernel(PlainClusters(1))
                          : name == KernelName::kImprovedClustered ? Kernel(ImprovedClusters(1, 1))
                          : name == KernelName::kCast              ? Kernel(CastOf(0))
                                                                   : Kernel(Vanilla{});
    if (!GetParam().supports(MakeSpec(UsualType(), kernel, 1, 1, 1, 1))) {
      GTEST_SKIP() << "this processor cannot run " << GetParam().backend;
    }
  }

  // With fewer heads of keys and values in some draws, and the values among the keys in some.
  Spec WithSharedHeads(Spec spec) {
    do {
      spec.kv_heads = UpTo(static_cast<int>(spec.heads));
    } while (spec.heads % spec.kv_heads != 0);
    spec.value_is_key_prefix = spec.value_dim <= spec.head_dim && UpTo(3) == 1;
    return spec;
  }

  static void Run(const OwnedProblem& problem) { Run(problem.spec, {&problem.view, 1}); }
  static void Run(const Spec& spec, std::span<const Problem> problems) {
    ASSERT_EQ(GetParam().supports(spec), !OnlyBFloat16() || spec.dtype == DType::kBFloat16);
    const absl::Status status = FindVariant(Table(), spec)->run(spec, problems, RunToEnd());
    ASSERT_TRUE(status.ok()) << status;
  }

  // The row, and for one of a single type those that take the others.
  static std::span<const Variant> Table() {
    return OnlyBFloat16() ? CpuVariants() : std::span<const Variant>(&GetParam(), 1);
  }
  static bool OnlyBFloat16() { return GetParam().backend == "cpu-avx512-bf16"; }
  static DType UsualType() { return OnlyBFloat16() ? DType::kBFloat16 : DType::kFloat32; }
};

}  // namespace castor::attention
