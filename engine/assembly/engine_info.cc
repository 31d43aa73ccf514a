#include "engine/assembly/engine_info.h"

#include <algorithm>
#include <string>

#include "engine/kernel_table.h"

namespace castor {
namespace {

// A problem that every implementation of a kernel should support if it supports the dtype.
attention::Spec CommonSpec(KernelName name, DType dtype) {
  attention::Spec spec;
  spec.dtype = dtype;
  spec.heads = 8;
  spec.head_dim = 64;
  spec.value_dim = 64;
  spec.softmax_scale = 0.125;
  spec.kernel = DefaultKernel(name);
  return spec;
}

}  // namespace

EngineInfo DescribeEngine(const Device& device) {
  EngineInfo info;
  info.device = device.info();
  for (const KernelRow& row : kKernels) {
    const KernelName name = row.name;
    KernelInfo kernel{name, {}, ""};
    for (const DType dtype : kFloatingDTypes) {
      const attention::Spec spec = CommonSpec(name, dtype);
      const auto variants = device.variants();
      const auto variant =
          std::find_if(variants.begin(), variants.end(), [&](const attention::Variant& candidate) {
            return candidate.kernel == name && candidate.supports(spec);
          });
      if (variant == variants.end()) continue;
      kernel.dtypes.push_back(dtype);
      if (kernel.backend.empty()) kernel.backend = std::string(variant->backend);
    }
    if (!kernel.dtypes.empty()) info.kernels.push_back(std::move(kernel));
  }
  return info;
}

std::vector<ModelInfo> DescribeModels(const ModelSet& models) {
  std::vector<ModelInfo> infos;
  for (const ModelPtr& model : models.all()) infos.push_back(model->info);
  return infos;
}

}  // namespace castor
