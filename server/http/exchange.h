// One HTTP request and its answer: what the connection that carries them and the handler that makes
// the answer know of each other. The connection knows no route, and the handler no socket.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/transport/call.h"

namespace castor::server::http {

using Fields = std::vector<std::pair<std::string, std::string>>;

// A request's header.
struct Header {
  std::string method;
  std::string path;    // percent-decoded but for slashes, without query and host
  std::string peer;    // as PeerName::name
  Fields fields = {};  // names in lower case
  std::optional<CertificateNames> certificate = std::nullopt;
};

struct Answer {
  int status = 200;
  std::string_view content_type = "application/json";  // a literal
  Fields fields = {};
  std::string body = {};
  // Appends the next piece of the body and returns whether another follows, so that a long answer
  // is never in memory as a whole. Runs on the connection's thread, and holds it for as long as a
  // piece takes. Null: `body` is all.
  absl::AnyInvocable<bool(std::string* body)> more = nullptr;
  int64_t length = -1;                   // of the whole body, if that is known before `more`
  std::shared_ptr<void> held = nullptr;  // until the answer has been written
};

// Pieces end when they have this size.
inline constexpr size_t kPieceBytes = 64 << 10;

// Takes the answer of one request. Any thread.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void Respond(Answer answer) noexcept = 0;  // once
  virtual void Close() = 0;                          // ends the connection
};

// One request, from its header to its answer's last byte. The connection calls everything, on one
// thread at a time, and owns it; an exchange that computes may live longer.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Whether the body, of this size (-1: not known yet), may be read. An answer refuses the request
  // without it.
  virtual std::optional<Answer> Begin(int64_t body_bytes) = 0;
  // The body is about to take this much memory in all. An answer refuses it.
  virtual std::optional<Answer> Hold(int64_t bytes) = 0;
  // The body is complete. Must lead to one Respond.
  virtual void OnBody(std::string body) = 0;
  // The peer has gone; perhaps after Respond.
  virtual void OnGone() = 0;
};

// Makes the exchange of a request whose header has arrived. Any thread; must not throw.
using MakeExchange =
    std::function<std::shared_ptr<Exchange>(Header header, std::shared_ptr<Responder> responder)>;

}  // namespace castor::server::http
