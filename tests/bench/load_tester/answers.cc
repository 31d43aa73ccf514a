#include "tests/bench/load_tester/answers.h"

#include <google/protobuf/message_lite.h>

#include "absl/strings/escaping.h"
#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "castor/v1/server.pb.h"
#include "google/rpc/code.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace castor::bench {
namespace {

constexpr size_t kPrefix = 5;  // a flag "compressed", and the message's length in big endian

std::string Framed(const google::protobuf::MessageLite& message) {
  std::string bytes(kPrefix, '\0');
  message.AppendToString(&bytes);
  const size_t size = bytes.size() - kPrefix;
  for (size_t i = 0; i < 4; ++i) bytes[1 + i] = static_cast<char>(size >> (24 - 8 * i) & 0xff);
  return bytes;
}

// Only one bit of it, so that nothing but a comparison of all bytes finds it.
void MakeWrong(v1::Tensor& tensor) { tensor.mutable_raw()->back() ^= 1; }

template <typename Response>
void Report(int64_t service_ns, Response& response) {
  const double us = static_cast<double>(service_ns) * 1e-3;
  response.mutable_kernel()->set_name(v1::VANILLA);
  response.mutable_kernel()->set_device("cpu");
  response.mutable_kernel()->set_backend("scripted");
  response.mutable_kernel()->mutable_vanilla();
  response.mutable_kernel()->set_measured_us(us);
  response.mutable_timing()->set_compute_us(us);
  response.mutable_timing()->set_total_us(us);
  response.mutable_batch()->set_requests(1);
  response.mutable_batch()->set_tokens(1);
}

void SetOneElement(v1::Tensor* tensor) {
  tensor->set_dtype(v1::FLOAT32);
  const float one = 1;
  tensor->set_raw(&one, sizeof(one));
}

}  // namespace

Method MethodOf(std::string_view path) {
  if (path == "/castor.v1.AttentionService/Attend") return Method::kAttend;
  if (path == "/castor.v1.EncoderService/Encode") return Method::kEncode;
  if (path == "/castor.v1.ServerService/GetServerInfo") return Method::kServerInfo;
  return Method::kUnknown;
}

Answers::Answers(int64_t service_ns) {
  v1::AttendResponse attend;
  SetOneElement(attend.mutable_output());
  for (int i = 0; i < 3; ++i) attend.mutable_output()->add_shape(1);
  Report(service_ns, attend);

  v1::EncodeResponse encode;
  SetOneElement(encode.mutable_output());
  for (int i = 0; i < 2; ++i) encode.mutable_output()->add_shape(1);
  encode.add_lengths(1);
  encode.add_token_counts(1);
  encode.add_truncated(false);
  encode.set_model("scripted");
  Report(service_ns, encode);

  for (const bool wrong : {false, true}) {
    if (wrong) {
      MakeWrong(*attend.mutable_output());
      MakeWrong(*encode.mutable_output());
    }
    attend_[wrong] = Framed(attend);
    encode_[wrong] = Framed(encode);
  }

  v1::ServerInfo info;
  info.set_version("scripted");
  info.add_devices()->set_name("cpu");
  info.add_models("scripted");
  server_info_ = Framed(info);

  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(50'000'000);
  google::rpc::Status status;
  status.set_code(google::rpc::RESOURCE_EXHAUSTED);
  status.set_message("refused by the script");
  status.add_details()->PackFrom(retry);
  refusal_ = absl::Base64Escape(status.SerializeAsString());
  while (refusal_.ends_with('=')) refusal_.pop_back();  // as gRPC's senders do
}

const std::string& Answers::Fixed(Method method, bool wrong) const {
  switch (method) {
    case Method::kEncode:
      return encode_[wrong];
    case Method::kServerInfo:
      return server_info_;
    case Method::kAttend:
    case Method::kUnknown:
      break;
  }
  return attend_[wrong];
}

std::string Answers::OneToken(std::string_view request, bool wrong) {
  v1::AttendRequest parsed;
  if (request.size() < kPrefix || request[0] != 0) return "";
  request.remove_prefix(kPrefix);
  if (!parsed.ParseFromArray(request.data(), static_cast<int>(request.size()))) return "";
  if (parsed.value().raw().empty()) return "";
  v1::AttendResponse response;
  response.set_request_id(parsed.request_id());
  *response.mutable_output() = std::move(*parsed.mutable_value());
  if (wrong) MakeWrong(*response.mutable_output());
  Report(0, response);
  return Framed(response);
}

}  // namespace castor::bench
