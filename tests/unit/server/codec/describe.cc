#include "tests/unit/server/codec/describe.h"

#include <bit>
#include <iomanip>
#include <sstream>
#include <type_traits>

namespace castor::server::twin {
namespace {

class Writer {
 public:
  template <typename T>
  Writer& Field(std::string_view name, const T& value) {
    text_ << name << ": ";
    Write(value);
    text_ << "\n";
    return *this;
  }

  std::string text() const { return text_.str(); }

 private:
  template <typename T>
    requires std::is_arithmetic_v<T>
  void Write(T value) {
    text_ << value;
  }
  // Numbers by their bits, so that NaNs compare and nothing is rounded.
  void Write(double value) { text_ << std::bit_cast<uint64_t>(value); }
  void Write(float value) { text_ << std::bit_cast<uint32_t>(value); }
  template <typename T>
    requires std::is_enum_v<T>
  void Write(T value) {
    text_ << static_cast<int>(value);
  }
  void Write(std::string_view text) { text_ << std::quoted(text); }

  template <typename T>
  void Write(const std::optional<T>& value) {
    if (value.has_value()) {
      Write(*value);
    } else {
      text_ << "unset";
    }
  }

  template <typename T>
  void Write(const std::vector<T>& values) {
    text_ << "[" << values.size() << ":";
    for (const T& value : values) {
      text_ << " ";
      Write(value);
    }
    text_ << "]";
  }

  void Write(const TensorInput& tensor) {
    text_ << "dtype " << NameOf(tensor.dtype) << " shape ";
    Write(tensor.shape);
    text_ << " bytes " << std::hex;
    for (const auto& piece : tensor.pieces) {
      for (std::byte byte : piece) text_ << std::setw(2) << std::setfill('0') << int(byte);
    }
    text_ << std::dec << " file ";
    Write(tensor.file);
  }
  void Write(const FileRange& range) {
    text_ << range.descriptor << " " << range.offset << " " << range.size;
  }

  void Write(const Spans::Range& range) {
    text_ << range.sequence << " " << range.begin << " " << range.end << " " << range.pair;
  }

  void Write(const Vanilla& it) { text_ << "vanilla " << it.causal; }
  void Write(const Clustered& it) {
    text_ << "clustered " << it.clusters << " " << it.iterations << " " << it.bits << " "
          << it.hash_bias << " " << it.seed << " ";
    Write(it.clustering);
  }
  void Write(const ImprovedClustered& it) {
    text_ << "improved " << it.topk << " ";
    Write(it.rest_mass);
    Write(static_cast<const Clustered&>(it));
  }
  void Write(const Cast& it) {
    text_ << "cast surrogates " << it.surrogates.index() << " ";
    std::visit([this](const auto& surrogates) { Write(surrogates); }, it.surrogates);
    text_ << " gate ";
    Write(it.gate);
    text_ << " " << it.cluster_size << " ";
    Write(it.clustering);
    Write(it.attention_function);
    Write(it.gate_temperature);
    Write(it.head_clustering);
  }
  void Write(const Automatic& it) {
    text_ << "automatic ";
    Write(it.allowed);
    Write(it.max_relative_error);
  }
  void Write(const Kernel& kernel) {
    std::visit([this](const auto& it) { Write(it); }, kernel);
  }

  std::ostringstream text_;
};

void Write(const CallContext& call, Writer* out) {
  out->Field("request_id", call.request_id)
      .Field("priority", call.priority)
      .Field("deadline", call.deadline.has_value())
      .Field("received", call.received.has_value());
}

}  // namespace

std::string Describe(const AttentionRequest& request) {
  Writer out;
  Write(request.call, &out);
  out.Field("query", request.query)
      .Field("key", request.key)
      .Field("value", request.value)
      .Field("query_lengths", request.query_lengths)
      .Field("key_lengths", request.key_lengths)
      .Field("softmax_scale", request.softmax_scale)
      .Field("kernel", request.kernel)
      .Field("fidelity_rows", request.fidelity_rows)
      .Field("check_finite", request.check_finite)
      .Field("return_log_sum_exp", request.return_log_sum_exp)
      .Field("value_is_key_prefix", request.value_is_key_prefix)
      .Field("value_dim", request.value_dim)
      .Field("query positions", request.positions.query)
      .Field("key positions", request.positions.key)
      .Field("left", request.positions.window.left)
      .Field("right", request.positions.window.right)
      .Field("always_visible", request.positions.window.always_visible)
      .Field("alibi_slopes", request.positions.alibi_slopes)
      .Field("relative_bias", request.positions.relative_bias)
      .Field("softcap", request.softcap)
      .Field("key_bias", request.key_bias);
  return out.text();
}

std::string Describe(const std::optional<FileRange>& output) {
  return Writer().Field("output", output).text();
}

std::string Describe(const EncodeRequest& request) {
  Writer out;
  Write(request.call, &out);
  out.Field("model", request.model);
  if (const auto* texts = std::get_if<TextInput>(&request.input)) {
    out.Field("texts", texts->texts)
        .Field("pairs", texts->pairs)
        .Field("allow_special_tokens", texts->allow_special_tokens);
  } else if (const auto* tokens = std::get_if<TokenInput>(&request.input)) {
    out.Field("ids", tokens->ids)
        .Field("type_ids", tokens->type_ids)
        .Field("lengths", tokens->lengths);
  } else {
    const auto& embeddings = std::get<EmbeddingInput>(request.input);
    out.Field("values", embeddings.values).Field("lengths", embeddings.lengths);
  }
  out.Field("kernel", request.kernel)
      .Field("output", request.output)
      .Field("outputs", request.outputs)
      .Field("output_type", request.output_type)
      .Field("ranges", request.ranges)
      .Field("prompt", request.prompt)
      .Field("pooling", request.pooling)
      .Field("truncation_side", request.truncation_side)
      .Field("max_tokens", request.max_tokens)
      .Field("normalize", request.normalize)
      .Field("dimensions", request.dimensions)
      .Field("truncate", request.truncate)
      .Field("check_finite", request.check_finite)
      .Field("span unit", request.spans.unit)
      .Field("spans", request.spans.ranges)
      .Field("prompt_name", request.prompt_name);
  return out.text();
}

}  // namespace castor::server::twin
