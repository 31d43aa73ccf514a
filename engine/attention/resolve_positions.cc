#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/attention/resolve.h"
#include "engine/base/error.h"

namespace castor::attention {
namespace {

// The largest position of either sign. Differences of two, and windows around them, are far from
// overflow.
constexpr int64_t kMostPosition = int64_t{1} << 40;

absl::Status Unsupported(std::string_view field, const Kernel& kernel) {
  return InvalidField(
      field, "the kernel " + std::string(NameOf(NameOf(kernel))) + " does not support this field");
}

// Positions of all tokens, from each sequence's first.
absl::Status CheckFirstPositions(const std::vector<int64_t>& first, std::string_view field,
                                 const std::vector<int32_t>& offsets) {
  const size_t sequences = offsets.size() - 1;
  if (!first.empty() && first.size() != sequences) {
    return InvalidField(field, "has " + std::to_string(first.size()) + " entries for " +
                                   std::to_string(sequences) + " sequences");
  }
  for (size_t i = 0; i < first.size(); ++i) {
    const int64_t tokens = offsets[i + 1] - offsets[i];
    if (first[i] < -kMostPosition || first[i] > kMostPosition - tokens) {
      return InvalidField(FieldAt(field, i), "positions must be within -2^40 .. 2^40");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWindow(const Window& window) {
  constexpr std::string_view kBelow = "must be at least 0, or -1 for no bound";
  if (window.left < -1) return InvalidField("positions.window.left", kBelow);
  if (window.right < -1) return InvalidField("positions.window.right", kBelow);
  if (window.always_visible < 0) {
    return InvalidField("positions.always_visible", "must not be negative");
  }
  return absl::OkStatus();
}

// A number of keys or positions, cut to where it makes no more difference.
int64_t Cut(int64_t distance) { return std::min(distance, 4 * kMostPosition); }

// The position of a sequence's first query, counted from its first key.
int64_t ShiftOf(const Positions& positions, size_t sequence, int64_t queries, int64_t keys) {
  const int64_t query = positions.query.empty() ? keys - queries : positions.query[sequence];
  return query - (positions.key.empty() ? 0 : positions.key[sequence]);
}

// The greatest distance of a query and a key of their sequence.
int64_t MostDistance(const Positions& positions, const Resolved& resolved) {
  int64_t most = 0;
  for (size_t s = 0; s + 1 < resolved.cu_seqlens_q.size(); ++s) {
    const int64_t queries = resolved.cu_seqlens_q[s + 1] - resolved.cu_seqlens_q[s];
    const int64_t keys = resolved.cu_seqlens_k[s + 1] - resolved.cu_seqlens_k[s];
    const int64_t shift = ShiftOf(positions, s, queries, keys);
    most = std::max({most, shift + queries - 1, keys - 1 - shift});
  }
  return most;
}

absl::Status ResolveSlopes(const Positions& positions, Resolved* resolved) {
  const std::vector<float>& slopes = positions.alibi_slopes;
  constexpr std::string_view kField = "positions.alibi_slopes";
  if (slopes.empty()) return absl::OkStatus();
  Spec& spec = resolved->spec;
  if (static_cast<int64_t>(slopes.size()) != spec.heads) {
    return InvalidField(kField, "has " + std::to_string(slopes.size()) + " entries for " +
                                    std::to_string(spec.heads) + " heads");
  }
  const auto distance = static_cast<double>(MostDistance(positions, *resolved));
  for (size_t i = 0; i < slopes.size(); ++i) {
    // Written so that NaN fails.
    if (!(std::abs(slopes[i]) * std::max(distance, 1.0) <= kMostBias)) {
      return InvalidField(
          FieldAt(kField, i),
          "must be finite, and at most 1e30 when multiplied by the greatest distance "
          "of a query and a key, " +
              std::to_string(MostDistance(positions, *resolved)));
    }
  }
  spec.bias.slopes = slopes.data();
  resolved->staging_bytes += spec.heads * static_cast<int64_t>(sizeof(float));
  return absl::OkStatus();
}

absl::Status ResolveTable(const TensorInput& table, Resolved* resolved) {
  constexpr std::string_view kField = "positions.relative_bias";
  Spec& spec = resolved->spec;
  if (absl::Status s = CheckDType(table, kField, DType::kFloat32); !s.ok()) return s;
  if (table.shape.size() != 2 || table.shape[1] % 2 == 0) {
    return InvalidField(std::string(kField) + ".shape", "must be [heads, 2 reach + 1]");
  }
  absl::Status status = CheckTensor(table, kField, &resolved->staging_bytes);
  status.Update(CheckDimension(table, kField, 0, spec.heads, "query's heads"));
  spec.bias.reach = table.shape[1] / 2;
  return status;
}

// The places of all sequences, if one is not what the engine takes it to be.
void ResolvePlaces(const Positions& positions, Resolved* resolved) {
  Spec& spec = resolved->spec;
  if (!IsCausal(spec) && !spec.positional()) return;
  if (positions.query.empty() && positions.key.empty()) return;
  const std::vector<int32_t>& q = resolved->cu_seqlens_q;
  const std::vector<int32_t>& k = resolved->cu_seqlens_k;
  std::vector<Place> places;
  for (size_t s = 0; s + 1 < q.size(); ++s) {
    const int64_t keys = k[s + 1] - k[s];
    const int64_t key = positions.key.empty() ? 0 : positions.key[s];
    const int64_t shift = ShiftOf(positions, s, q[s + 1] - q[s], keys);
    const int64_t sinks = spec.window.always_visible;
    const int64_t visible = sinks == 0 ? 0 : std::clamp<int64_t>(sinks - key, 0, keys);
    places.push_back({.shift = shift, .visible = visible});
    spec.placed =
        spec.placed || shift != keys - (q[s + 1] - q[s]) || visible != std::min(sinks, keys);
  }
  if (spec.placed) resolved->places = std::move(places);
}

absl::Status ResolvePositions(const Positions& positions, Resolved* resolved) {
  if (!positions.any()) return absl::OkStatus();
  Spec& spec = resolved->spec;
  if (!std::holds_alternative<Vanilla>(spec.kernel)) {
    return Unsupported("positions", spec.kernel);
  }
  absl::Status status =
      CheckFirstPositions(positions.query, "positions.query", resolved->cu_seqlens_q);
  status.Update(CheckFirstPositions(positions.key, "positions.key", resolved->cu_seqlens_k));
  status.Update(CheckWindow(positions.window));
  if (status.ok()) status = ResolveSlopes(positions, resolved);
  if (positions.relative_bias.has_value()) {
    status.Update(ResolveTable(*positions.relative_bias, resolved));
  }
  if (!status.ok()) return status;
  if (positions.window.any()) {
    spec.window = {.left = Cut(positions.window.left),
                   .right = Cut(positions.window.right),
                   .always_visible = Cut(positions.window.always_visible)};
  }
  ResolvePlaces(positions, resolved);
  return absl::OkStatus();
}

absl::Status ResolveSoftcap(double softcap, Spec* spec) {
  if (softcap == 0) return absl::OkStatus();
  // Written so that NaN fails.
  if (!(softcap > 0 && softcap <= kMostBias)) {
    return InvalidField("softcap", "must be positive and at most 1e30, or 0 for none");
  }
  if (!std::holds_alternative<Vanilla>(spec->kernel)) {
    return Unsupported("softcap", spec->kernel);
  }
  spec->softcap = softcap;
  return absl::OkStatus();
}

absl::Status ResolveKeyBias(const TensorInput& bias, const Geometry& geometry, Resolved* resolved) {
  constexpr std::string_view kField = "key_bias";
  Spec& spec = resolved->spec;
  if (std::holds_alternative<Cast>(spec.kernel)) {
    return Unsupported(kField, spec.kernel);
  }
  if (absl::Status s = CheckDType(bias, kField, DType::kFloat32); !s.ok()) return s;
  const size_t tokens = geometry.packed ? 0 : 1;  // the dimension that counts tokens
  if (bias.shape.size() != tokens + 1 && bias.shape.size() != tokens + 2) {
    return InvalidField("key_bias.shape",
                        geometry.packed
                            ? "must be [key_tokens] or [key_tokens, kv_heads]"
                            : "must be [batch, key_tokens] or [batch, key_tokens, kv_heads]");
  }
  absl::Status status = CheckTensor(bias, kField, &resolved->staging_bytes);
  if (!geometry.packed) {
    status.Update(CheckDimension(bias, kField, 0, geometry.batch, "query's batch"));
  }
  status.Update(CheckDimension(bias, kField, tokens, geometry.key_tokens, "the tokens of key"));
  const bool of_heads = bias.shape.size() == tokens + 2;
  if (of_heads) {
    status.Update(CheckDimension(bias, kField, tokens + 1, spec.kv_heads, "key's heads"));
  }
  spec.key_bias_heads = of_heads ? spec.kv_heads : 1;
  return status;
}

}  // namespace

absl::Status ResolveScores(const AttentionRequest& request, const Geometry& geometry,
                           Resolved* resolved) {
  if (absl::Status s = ResolvePositions(request.positions, resolved); !s.ok()) return s;
  if (absl::Status s = ResolveSoftcap(request.softcap, &resolved->spec); !s.ok()) return s;
  if (!request.key_bias.has_value()) return absl::OkStatus();
  return ResolveKeyBias(*request.key_bias, geometry, resolved);
}

}  // namespace castor::attention
