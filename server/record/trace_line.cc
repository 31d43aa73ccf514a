#include "server/record/trace_line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <variant>

namespace castor::server {
namespace {

// The bounds of the format. What is beyond them is refused by the engine as well.
constexpr int64_t kMaxDimension = 65536;
constexpr int64_t kMaxTokens = int64_t{1} << 20;
constexpr size_t kMaxSequences = 4096;
constexpr size_t kMaxName = 128;
constexpr size_t kUsualLine = 256;

std::string_view TraceName(EncodeOutput output) {
  switch (output) {
    case EncodeOutput::kPooled:
      return "pooled";
    case EncodeOutput::kTokenEmbeddings:
      return "token-embeddings";
    case EncodeOutput::kLogits:
      return "logits";
    case EncodeOutput::kScores:
      return "scores";
    case EncodeOutput::kSparse:
      return "sparse";
  }
  return "";
}

void AppendNumber(uint64_t value, std::string* line) {
  std::array<char, 24> digits;
  line->append(digits.data(),
               std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

void AppendPair(std::string_view key, uint64_t value, std::string* line) {
  line->append(",\"").append(key).append("\":");
  AppendNumber(value, line);
}

void AppendPair(std::string_view key, std::string_view value, std::string* line) {
  line->append(",\"").append(key).append("\":\"").append(value).append("\"");
}

// [128,[64,3]] for 128, 64, 64, 64.
void AppendSizes(std::string_view key, const std::vector<int64_t>& sizes, std::string* line) {
  line->append(",\"").append(key).append("\":[");
  for (size_t i = 0; i < sizes.size();) {
    size_t end = i + 1;
    while (end < sizes.size() && sizes[end] == sizes[i]) ++end;
    if (i > 0) line->push_back(',');
    if (end - i > 1) line->push_back('[');
    AppendNumber(static_cast<uint64_t>(sizes[i]), line);
    if (end - i > 1) {
      line->push_back(',');
      AppendNumber(end - i, line);
      line->push_back(']');
    }
    i = end;
  }
  line->push_back(']');
}

// A model's name, or MODEL/INDEX; anything else that a caller sends is not for the file.
bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxName &&
         text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "0123456789._-/") == std::string_view::npos;
}

bool AreSizes(const std::vector<int64_t>& sizes) {
  return !sizes.empty() && sizes.size() <= kMaxSequences &&
         std::all_of(sizes.begin(), sizes.end(),
                     [](int64_t size) { return size >= 1 && size <= kMaxTokens; });
}

bool AreShape(const std::vector<int64_t>& shape) {
  if (shape.size() != 3 && shape.size() != 4) return false;
  const auto last = shape.end();
  return std::all_of(last - 2, last, [](int64_t dim) { return dim >= 1 && dim <= kMaxDimension; });
}

// The sequences of a tensor [tokens, ...] or [batch, tokens, ...]; empty: none that make sense.
std::vector<int64_t> SequencesOf(const std::vector<int64_t>& shape,
                                 const std::vector<int64_t>& lengths) {
  if (!lengths.empty()) return lengths;
  if (shape.size() == 3) return {shape[0]};
  if (shape[0] < 1 || shape[0] > static_cast<int64_t>(kMaxSequences)) return {};
  return std::vector<int64_t>(static_cast<size_t>(shape[0]), shape[1]);
}

void AppendClusters(const Clustered& kernel, std::string* line) {
  const auto whole = [](int32_t value) { return static_cast<uint64_t>(std::max(value, 0)); };
  AppendPair("clusters", whole(kernel.clusters), line);
  AppendPair("iterations", whole(kernel.iterations), line);
  if (kernel.clustering == Clustered::Clustering::kHash) {
    AppendPair("bits", whole(kernel.bits), line);
    if (!kernel.hash_bias) line->append(",\"hash_bias\":false");
  } else {
    AppendPair("query_clustering", "query-space", line);
  }
  if (kernel.seed != 0) AppendPair("seed", kernel.seed, line);
}

void AppendKernel(const Kernel& kernel, std::string* line) {
  if (const auto* vanilla = std::get_if<Vanilla>(&kernel)) {
    AppendPair("kernel", "vanilla", line);
    if (vanilla->causal) line->append(",\"causal\":true");
  } else if (const auto* clustered = std::get_if<Clustered>(&kernel)) {
    AppendPair("kernel", "clustered", line);
    AppendClusters(*clustered, line);
  } else if (const auto* improved = std::get_if<ImprovedClustered>(&kernel)) {
    AppendPair("kernel", "improved-clustered", line);
    AppendClusters(*improved, line);
    AppendPair("topk", static_cast<uint64_t>(std::max(improved->topk, 0)), line);
    if (improved->rest_mass == ImprovedClustered::RestMass::kQuery) {
      AppendPair("rest_mass", "query", line);
    }
  } else if (const auto* cast = std::get_if<Cast>(&kernel)) {
    AppendPair("kernel", "cast", line);
    if (cast->cluster_size > 0) {
      AppendPair("cluster_size", static_cast<uint64_t>(cast->cluster_size), line);
    }
    const auto* surrogates = std::get_if<TensorInput>(&cast->surrogates);
    const auto* layer = std::get_if<std::string>(&cast->surrogates);
    if (surrogates != nullptr && !surrogates->shape.empty() && surrogates->shape[0] >= 1 &&
        surrogates->shape[0] <= kMaxDimension) {
      AppendPair("surrogate_tokens", static_cast<uint64_t>(surrogates->shape[0]), line);
    }
    if (layer != nullptr && IsName(*layer)) AppendPair("layer", *layer, line);
  } else {
    AppendPair("kernel", "automatic", line);
  }
}

void AppendCall(std::string_view kind, const CallContext& call, std::chrono::nanoseconds at,
                std::chrono::nanoseconds left, std::string* line) {
  const auto whole = [](int64_t value) {
    return static_cast<uint64_t>(std::max<int64_t>(value, 0));
  };
  line->reserve(kUsualLine);
  line->append("{\"at_us\":");
  AppendNumber(whole(at.count() / 1000), line);
  AppendPair("kind", kind, line);
  AppendPair("deadline_ms", whole(left.count() / 1'000'000), line);
  if (call.priority == Priority::kLow) AppendPair("priority", "low", line);
  if (call.priority == Priority::kHigh) AppendPair("priority", "high", line);
}

std::string_view TypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    default:
      return "float32";
  }
}

}  // namespace

void TraceLine::Begin(const AttentionRequest& request, std::chrono::nanoseconds at,
                      std::chrono::nanoseconds left) {
  const auto& query = request.query.shape;
  const auto& key = request.key.shape;
  const auto& value = request.value.shape;
  if (!AreShape(query) || !AreShape(key) || !AreShape(value)) return;
  const std::vector<int64_t> sequences = SequencesOf(query, request.query_lengths);
  const std::vector<int64_t> keys =
      SequencesOf(key, request.key_lengths.empty() ? request.query_lengths : request.key_lengths);
  if (!AreSizes(sequences) || !AreSizes(keys) || keys.size() != sequences.size()) return;
  AppendCall("attend", request.call, at, left, &line_);
  AppendSizes("sequences", sequences, &line_);
  if (keys != sequences) AppendSizes("key_sequences", keys, &line_);
  AppendPair("heads", static_cast<uint64_t>(query[query.size() - 2]), &line_);
  AppendPair("head_dim", static_cast<uint64_t>(query.back()), &line_);
  if (value.back() != query.back()) {
    AppendPair("value_dim", static_cast<uint64_t>(value.back()), &line_);
  }
  AppendPair("dtype", TypeName(request.query.dtype), &line_);
  AppendKernel(request.kernel, &line_);
}

void TraceLine::Begin(const EncodeRequest& request, std::chrono::nanoseconds at,
                      std::chrono::nanoseconds left) {
  std::vector<int64_t> sizes;
  const auto* texts = std::get_if<TextInput>(&request.input);
  if (texts != nullptr) {
    if (texts->texts.empty() || texts->texts.size() > kMaxSequences) return;
    for (size_t i = 0; i < texts->texts.size(); ++i) {
      const size_t pair = i < texts->pairs.size() ? texts->pairs[i].size() : 0;
      sizes.push_back(static_cast<int64_t>(texts->texts[i].size() + pair));
    }
    AppendSizes("text_bytes", sizes, &bytes_);
  } else if (const auto* tokens = std::get_if<TokenInput>(&request.input)) {
    sizes = tokens->lengths;
    if (sizes.empty()) sizes.push_back(static_cast<int64_t>(tokens->ids.size()));
  } else {
    const auto& embeddings = std::get<EmbeddingInput>(request.input);
    sizes = embeddings.lengths;
    if (sizes.empty() && !embeddings.values.shape.empty()) {
      sizes.push_back(embeddings.values.shape[0]);
    }
  }
  if (texts == nullptr && !AreSizes(sizes)) return;
  AppendCall("encode", request.call, at, left, &line_);
  if (IsName(request.model)) AppendPair("model", request.model, &line_);
  if (request.output.has_value()) AppendPair("output", TraceName(*request.output), &line_);
  if (request.kernel.has_value()) AppendKernel(*request.kernel, &line_);
  if (texts == nullptr) AppendSizes("sequences", sizes, &line_);
}

std::string TraceLine::Finish(const std::vector<int64_t>* token_counts) {
  if (!bytes_.empty()) {
    if (token_counts != nullptr && AreSizes(*token_counts)) {
      AppendSizes("sequences", *token_counts, &line_);
    } else {
      line_.append(bytes_);
    }
  }
  line_.append("}\n");
  return std::move(line_);
}

}  // namespace castor::server
