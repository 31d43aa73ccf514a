// Writes the first corpus of client_answers: make_answer_seeds FOLDER. Built with CASTOR_FUZZ.

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "client/tensor.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace {

using namespace castor;

std::string folder;

void Write(const std::string& name, char target, const std::string& bytes) {
  std::ofstream(folder + "/" + name, std::ios::binary) << target << bytes;
}

template <typename Response>
void Report(Response& response) {
  response.mutable_kernel()->set_name(v1::IMPROVED_CLUSTERED);
  response.mutable_kernel()->mutable_improved_clustered()->set_topk(32);
  v1::RejectedKernel* const rejected = response.mutable_kernel()->add_rejected();
  rejected->set_name(v1::CLUSTERED);
  rejected->set_relative_error(0.5);
  response.mutable_timing()->set_total_us(12);
  response.mutable_batch()->set_requests(1);
}

// One answer for so many inputs; two answers are joined.
void WriteEncode(const std::string& name, char sequences, char spans,
                 const v1::EncodeResponse& response) {
  Write(name, 0, std::string{sequences, spans} + response.SerializeAsString());
}

v1::EncodeResponse Pooled(const std::vector<int64_t>& lengths, int64_t rows) {
  v1::EncodeResponse response;
  Report(response);
  const std::vector<float> values(static_cast<size_t>(3 * rows), 0.5F);
  *response.mutable_output() = client::MakeTensor(values, {rows, 3});
  for (const int64_t length : lengths) {
    response.add_lengths(length);
    response.add_token_counts(7);
    response.add_truncated(length > 1);
  }
  return response;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  folder = argv[1];
  WriteEncode("pooled", 2, 0, Pooled({1, 1}, 2));
  WriteEncode("tokens", 2, 0, Pooled({1, 4}, 5));
  v1::EncodeResponse labels = Pooled({1, 4}, 5);
  for (const char* label : {"O", "LOC", "\x1b[2J"}) labels.add_labels(label);
  WriteEncode("labels", 2, 0, labels);
  v1::EncodeResponse spans = Pooled({2}, 2);
  for (int i = 0; i < 2; ++i) spans.add_spans()->set_end(3);
  WriteEncode("spans", 1, 2, spans);
  v1::EncodeResponse sparse = Pooled({1}, 1);
  sparse.clear_output();
  sparse.mutable_sparse()->add_indices(9);
  sparse.mutable_sparse()->add_values(2);
  sparse.mutable_sparse()->add_lengths(1);
  WriteEncode("sparse", 1, 0, sparse);
  Write("numbers", 1, std::string("\2\0\1\0\2\3\5\5\7\7\0\0", 12));
  Write("numbers-spans", 1, std::string("\1\2\0\0\2\3\6\7\0\4\7\0\4\7\0", 15));

  v1::AttendResponse attend;
  Report(attend);
  *attend.mutable_output() = client::MakeTensor(std::vector<float>(6, 1), {3, 1, 2});
  Write("attend", 2, attend.SerializeAsString());
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_domain("castor");
  info.set_reason("INVALID_FIELD");
  details.add_details()->PackFrom(info);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(2);
  details.add_details()->PackFrom(retry);
  const std::string packed = details.SerializeAsString();
  Write("error", 3, std::string(packed.size(), 'm') + packed);
  Write("load-attend", 4, attend.SerializeAsString());
  Write("load-encode", 4, Pooled({1, 1}, 2).SerializeAsString());
  // Two readings: each half is one.
  const std::string page =
      "# TYPE a counter\ncastor_ready 1\n"
      "castor_requests_total{code=\"OK\",method=\"m\",kernel=\"k\"} 3\n"
      "castor_requests_total{code=\"E\",method=\"m\",kernel=\"k\"} 3\n"
      "castor_request_duration_seconds_bucket{method=\"m\",kernel=\"k\",le=\"1\"} 1\n"
      "castor_request_duration_seconds_bucket{method=\"m\",kernel=\"k\",le=\"+Inf\"} 2\n"
      "castor_batch_requests_count{operation=\"m\",kernel=\"k\"} 1e3 5\n"
      "castor_tenant_compute_seconds_total{tenant=\"t\"} 1\n"
      "castor_model_weights_bytes{model=\"\\\"\"} 7 # {x=\"y\"} 1\ncastor_queue_depth 12\n";
  std::string later = page;
  std::replace(later.begin(), later.end(), '3', '9');
  Write("page", 5, page + later);
  return 0;
}
