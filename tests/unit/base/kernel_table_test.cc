#include "engine/kernel_table.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace castor {
namespace {

// Dashboards, logs and cost model files use these labels.
TEST(KernelTable, LabelsStay) {
  std::vector<std::string_view> labels;
  for (const KernelRow& row : kKernels) labels.push_back(row.label);
  EXPECT_EQ(labels,
            (std::vector<std::string_view>{"vanilla", "clustered", "improved_clustered", "cast"}));
}

TEST(KernelTable, RowsAreFoundByNameAndLabel) {
  for (const KernelRow& row : kKernels) {
    EXPECT_EQ(&RowOf(row.name), &row);
    EXPECT_EQ(FindKernel(row.label), &row);
    EXPECT_EQ(NameOf(row.name), row.label);
  }
  EXPECT_EQ(FindKernel("none"), nullptr);
}

TEST(KernelTable, DefaultsAreOfTheKernelAskedFor) {
  for (const KernelRow& row : kKernels) EXPECT_EQ(NameOf(DefaultKernel(row.name)), row.name);
  EXPECT_EQ(std::get<ImprovedClustered>(DefaultKernel(KernelName::kImprovedClustered)).topk, 32);
}

}  // namespace
}  // namespace castor
