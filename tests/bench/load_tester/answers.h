// The messages that a scripted server sends, as bytes with gRPC's prefix of five.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace castor::bench {

enum class Method { kAttend, kEncode, kServerInfo, kUnknown };

// By the HTTP/2 request's :path.
Method MethodOf(std::string_view path);

class Answers {
 public:
  // `service_ns` is what the answers' Timing tells.
  explicit Answers(int64_t service_ns);

  // A small answer that the contract allows; `wrong`: the same with another element.
  const std::string& Fixed(Method method, bool wrong) const;

  // The answer to a real AttendRequest, whose one query sees one key: its value. `request` has the
  // prefix, too. Empty if it cannot be parsed, or does not bring the value's elements with it.
  static std::string OneToken(std::string_view request, bool wrong);

  // The value of `grpc-status-details-bin` of a refusal: RESOURCE_EXHAUSTED with a RetryInfo of
  // 50 ms.
  const std::string& refusal() const { return refusal_; }

 private:
  std::string attend_[2], encode_[2], server_info_;  // [wrong]
  std::string refusal_;
};

}  // namespace castor::bench
