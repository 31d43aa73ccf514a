#include "engine/assembly/engine_info.h"

#include <string>

#include "engine/kernel_table.h"

namespace castor {
namespace {

// A problem that every implementation of a kernel should support if it supports the dtype.
attention::Spec CommonSpec(KernelName name, DType dtype) {
  attention::Spec spec;
  spec.dtype = dtype;
  spec.heads = spec.kv_heads = 8;
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
    KernelInfo kernel{name, {}, "", true, true, true, true};
    for (const DType dtype : kFloatingDTypes) {
      const attention::Spec spec = CommonSpec(name, dtype);
      const attention::Variant* const variant = FindVariant(device.variants(), spec);
      if (variant == nullptr) continue;
      kernel.dtypes.push_back(dtype);
      if (kernel.backend.empty()) kernel.backend = std::string(variant->backend);
      const auto takes = [&](auto change) {
        attention::Spec changed = spec;
        change(changed);
        return FindVariant(device.variants(), changed) != nullptr;
      };
      kernel.log_sum_exp &= takes([](attention::Spec& s) { s.log_sum_exp = true; });
      kernel.positions &= takes([](attention::Spec& s) {
        s.placed = true;
        s.window = {.left = 1, .right = 1, .always_visible = 1};
        s.bias.reach = 1;
      });
      kernel.softcap &= takes([](attention::Spec& s) { s.softcap = 1; });
      kernel.key_bias &= takes([](attention::Spec& s) { s.key_bias_heads = 1; });
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
