#include "client/load/schedule/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "client/cli/command.h"
#include "client/file.h"

namespace castor::load {
namespace {

constexpr size_t kTraceBlock = 1 << 20;  // bytes read at a time
constexpr size_t kMaxTraceLine = 1 << 18;

// Adds the lengths that a message gives, or those of one sequence, or of a batch.
std::vector<int64_t> LengthsOf(const google::protobuf::RepeatedField<int64_t>& given,
                               const google::protobuf::RepeatedField<int64_t>& shape) {
  if (!given.empty()) return {given.begin(), given.end()};
  if (shape.size() == 4) return std::vector<int64_t>(static_cast<size_t>(shape[0]), shape[1]);
  if (shape.size() == 3) return {shape[0]};
  return {};
}

template <typename Message>
void DescribeClusters(const Message& message, cli::KernelFlags* kernel) {
  kernel->clusters = message.clusters();
  kernel->iterations = message.iterations();
  kernel->bits = message.bits();
  kernel->hash_bias = !message.has_hash_bias() || message.hash_bias();
  kernel->kernel_seed = message.seed();
  if (message.clustering() == v1::HASH) kernel->query_clustering = "hash";
  if (message.clustering() == v1::QUERY_SPACE) kernel->query_clustering = "query-space";
}

std::string RestMassOf(const v1::ImprovedClustered& message) {
  if (message.rest_mass() == v1::ImprovedClustered::CENTROID) return "centroid";
  return message.rest_mass() == v1::ImprovedClustered::QUERY ? "query" : "";
}

template <typename Request>
void DescribeKernel(const Request& request, TraceRequest* to) {
  cli::KernelFlags& kernel = to->kernel;
  switch (request.kernel_case()) {
    case Request::kVanilla:
      kernel.kernel = "vanilla";
      kernel.causal = request.vanilla().causal();
      break;
    case Request::kClustered:
      kernel.kernel = "clustered";
      DescribeClusters(request.clustered(), &kernel);
      break;
    case Request::kImprovedClustered:
      kernel.kernel = "improved-clustered";
      DescribeClusters(request.improved_clustered(), &kernel);
      kernel.topk = request.improved_clustered().topk();
      kernel.rest_mass = RestMassOf(request.improved_clustered());
      break;
    case Request::kCast:
      kernel.kernel = "cast";
      kernel.cluster_size = request.cast().cluster_size();
      kernel.layer = request.cast().layer();
      if (request.cast().surrogate_tokens().shape_size() > 0) {
        to->surrogate_tokens = request.cast().surrogate_tokens().shape(0);
      }
      break;
    case Request::kAutomatic:
      kernel.kernel = "automatic";
      break;
    case Request::KERNEL_NOT_SET:
      break;
  }
}

}  // namespace

TraceRequest Describe(const v1::AttendRequest& request) {
  TraceRequest described;
  const auto& query = request.query().shape();
  const auto& value = request.value().shape();
  described.lengths = LengthsOf(request.query_lengths(), query);
  described.key_lengths = request.key_lengths().empty() && query.size() == 3 &&
                                  request.key().shape_size() == 3 &&
                                  !request.query_lengths().empty()
                              ? std::vector<int64_t>()
                              : LengthsOf(request.key_lengths(), request.key().shape());
  if (described.key_lengths == described.lengths) described.key_lengths.clear();
  if (query.size() >= 2) {
    described.heads = query[query.size() - 2];
    described.head_dim = query[query.size() - 1];
  }
  if (!value.empty() && value[value.size() - 1] != described.head_dim) {
    described.value_dim = value[value.size() - 1];
  }
  described.dtype = request.query().dtype();
  described.priority = request.priority();
  DescribeKernel(request, &described);
  return described;
}

TraceRequest Describe(const v1::EncodeRequest& request) {
  TraceRequest described;
  described.encode = true;
  for (const std::string& text : request.texts().texts()) {
    described.text_bytes.push_back(static_cast<int64_t>(text.size()));
  }
  const auto& tokens = request.tokens();
  if (request.has_tokens()) {
    described.lengths.assign(tokens.lengths().begin(), tokens.lengths().end());
    if (described.lengths.empty()) described.lengths.push_back(tokens.ids_size());
  }
  const auto& embeddings = request.embeddings();
  if (request.has_embeddings() && embeddings.values().shape_size() > 0) {
    described.lengths.assign(embeddings.lengths().begin(), embeddings.lengths().end());
    if (described.lengths.empty()) described.lengths.push_back(embeddings.values().shape(0));
  }
  described.model = request.model();
  described.output = request.output();
  described.priority = request.priority();
  DescribeKernel(request, &described);
  return described;
}

void ReadTrace(const std::string& path, const std::function<void(const TraceRequest&)>& visit) {
  auto file = client::InputFile::Open(path);
  if (!file.ok()) throw cli::UsageError(std::string(file.status().message()));
  int64_t number = 0, requests = 0;
  const auto fail = [&](const std::string& why) {
    throw cli::UsageError("line " + std::to_string(number) + " of " + file->name() + " " + why);
  };
  const auto read = [&](std::string_view line) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.size() > kMaxTraceLine) fail("is longer than 256 KiB");
    if (line.empty()) return;
    if (++requests > kMaxTraceRequests) fail("is one request too many: 10000000 are read");
    TraceRequest request;
    try {
      request = ParseTraceLine(line);
    } catch (const std::invalid_argument& error) {
      fail(std::string(error.what()).starts_with('"') ? std::string(": ") + error.what()
                                                      : error.what());
    }
    visit(request);
  };
  std::string text;  // what of the file is read and not visited: a line's begin, and then a block
  while (true) {
    const size_t before = text.size();
    const absl::Status status = file->Append(kTraceBlock, &text);
    if (!status.ok()) throw cli::UsageError(std::string(status.message()));
    if (text.size() == before) break;
    std::string_view rest = text;
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos;) {
      read(rest.substr(0, end));
      rest.remove_prefix(end + 1);
    }
    if (rest.size() > kMaxTraceLine) read(rest);  // refuses it before more is kept
    text.erase(0, text.size() - rest.size());
  }
  if (!text.empty()) read(text);
  if (requests == 0) throw cli::UsageError(file->name() + " holds no requests");
}

TraceWriter::TraceWriter(const std::string& file) : file_(std::fopen(file.c_str(), "we")) {
  if (file_ == nullptr) {
    throw cli::UsageError("cannot write " + file + ": " + std::strerror(errno));
  }
}

TraceWriter::~TraceWriter() { Close(); }

void TraceWriter::Write(const TraceRequest& request) {
  const std::string line = ToTraceLine(request) + "\n";
  const std::lock_guard lock(mu_);
  if (file_ == nullptr) return;
  failed_ = std::fwrite(line.data(), 1, line.size(), file_) != line.size() || failed_;
}

bool TraceWriter::Close() {
  const std::lock_guard lock(mu_);
  if (file_ == nullptr) return !failed_;
  failed_ = std::fclose(file_) != 0 || failed_;
  file_ = nullptr;
  return !failed_;
}

}  // namespace castor::load
