// One HTTP/1.1 connection. Included by listener.cc alone: Boost's headers take long to compile.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <charconv>
#include <concepts>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "engine/base/guarded.h"
#include "engine/base/mutex.h"
#include "server/http/listener.h"
#include "server/tls/certificates.h"

namespace castor::server::http {

namespace beast = boost::beast;
namespace net = boost::asio;

using Plain = net::ip::tcp::socket;
using Tls = beast::ssl_stream<Plain>;

// A request's header, as the socket has it.
inline constexpr uint32_t kMaxHeaderBytes = 16 << 10;
// The first memory for a body; it doubles as the body arrives.
inline constexpr size_t kFirstBodyBytes = 16 << 10;
// For a TLS peer to answer our farewell, and for the rest of a request when the listener leaves.
inline constexpr std::chrono::seconds kFarewell{1};

class OpenConnection {
 public:
  virtual ~OpenConnection() = default;
  // The listener leaves, or stops. Any thread.
  virtual void EndIfIdle() = 0;
  virtual void Close() = 0;
};

// Shared by a listener's connections, which it outlives: the engine may answer a call after its
// listener has gone.
struct Shared {
  Shared(const ListenerSettings& how, MakeExchange exchanges)
      : settings(how), make(std::move(exchanges)) {}

  net::io_context context;
  const ListenerSettings settings;
  const MakeExchange make;
  std::atomic<bool> leaving = false;
  Mutex mu;
  std::map<OpenConnection*, std::weak_ptr<OpenConnection>> open ABSL_GUARDED_BY(mu);
};

// Whether a proxy in front may disagree on where the body ends, and so on the next request.
inline bool IsAmbiguous(const beast::http::fields& fields) {
  int lengths = 0;
  for (const auto& field : fields) {
    const auto value = field.value();
    if (field.name() == beast::http::field::content_length) {
      ++lengths;
      if (value.find_first_not_of("0123456789") != value.npos) return true;
    } else if (field.name() == beast::http::field::transfer_encoding) {
      ++lengths;
      if (!beast::iequals(value, "chunked")) return true;
    }
  }
  return lengths > 1;
}

// The path of a request's target, which is a whole URL where a client means a proxy.
std::string PathOf(std::string_view target);

// The status line and the fields of an answer, with the empty line after them. `length`: of the
// body; -1: it comes in chunks, or ends with the connection.
std::string HeaderText(const Answer& answer, int64_t length, bool chunks, bool keep_alive);

// All members are the strand's, but `shared_`.
template <typename Stream>
class Connection final : public Responder,
                         public OpenConnection,
                         public std::enable_shared_from_this<Connection<Stream>> {
 public:
  template <typename... More>  // the TLS context
  Connection(std::shared_ptr<Shared> shared, std::string peer, net::ip::tcp::socket socket,
             More&... more)
      : owned_(std::move(shared)),
        shared_(*owned_),
        peer_(std::move(peer)),
        stream_(std::move(socket), more...) {}

  ~Connection() override {
    End();  // of a connection that no handler waits for: Asio threw
    MutexLock lock(shared_.mu);
    shared_.open.erase(this);
  }

  void Start() {
    {
      MutexLock lock(shared_.mu);
      shared_.open[this] = this->weak_from_this();
    }
    net::dispatch(stream_.get_executor(), Bind(&Connection::Greet));
  }

  void EndIfIdle() override {
    net::post(stream_.get_executor(), [self = this->shared_from_this()] {
      if (self->exchange_ != nullptr) return;
      // A request that has been sent is answered, or refused, before.
      char byte;
      const int socket = self->Lowest().native_handle();
      const bool sent = self->Lowest().is_open() &&
                        (self->buffer_.size() > 0 ||
                         recv(socket, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) > 0);
      if (sent) return self->EndAfter(kFarewell);
      self->End();
    });
  }

  void Respond(Answer answer) noexcept override {
    if (shared_.context.stopped()) return;  // no thread would run it
    given_ = std::move(answer);
    net::post(stream_.get_executor(), Bind(&Connection::WriteGiven));
  }

  void Close() override {
    net::post(stream_.get_executor(), [self = this->shared_from_this()] { self->Gone(); });
  }

 private:
  using Error = beast::error_code;

  // Whether the peer sent what is not HTTP.
  static bool IsMalformed(Error error) {
    using HttpError = beast::http::error;
    return error.category() == make_error_code(HttpError::bad_field).category() &&
           error != HttpError::partial_message;
  }

  // A handler that calls `method`. The connection ends if it throws, for want of memory.
  auto Bind(auto method) {
    return [self = this->shared_from_this(), method](const auto&... arguments) {
      if (!Guarded([&] { (self.get()->*method)(arguments...); }).ok()) self->Gone();
    };
  }
  Plain& Lowest() { return beast::get_lowest_layer(stream_); }

  void Greet() {
    if constexpr (std::same_as<Stream, Tls>) {
      EndAfter(shared_.settings.handshake);
      stream_.async_handshake(net::ssl::stream_base::server, Bind(&Connection::OnGreeted));
    } else {
      ReadHeader();
    }
  }

  void OnGreeted(Error error) {
    if (error) return End();
    ReadHeader();
  }

  void ReadHeader() {
    if (shared_.leaving) return Farewell();
    buffer_.shrink_to_fit();
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(std::numeric_limits<uint64_t>::max());  // the exchange bounds it
    EndAfter(shared_.settings.idle);
    reading_ = true;
    beast::http::async_read_header(stream_, buffer_, *parser_, Bind(&Connection::OnHeader));
  }

  void OnHeader(Error error, size_t /*bytes*/) {
    reading_ = false;
    timer_.cancel();  // from here on the exchange knows the time
    if (error == beast::http::error::end_of_stream) return Farewell();
    if (error && !IsMalformed(error)) return End();
    const auto& message = parser_->get();
    if (error || IsAmbiguous(message)) return Reject(error);
    Header header{.method = std::string(message.method_string()),
                  .path = PathOf({message.target().data(), message.target().size()}),
                  .peer = peer_};
    for (const auto& field : message) {
      header.fields.emplace_back(absl::AsciiStrToLower(std::string(field.name_string())),
                                 std::string(field.value()));
    }
    if constexpr (std::same_as<Stream, Tls>) {
      header.certificate = NamesOfPeer(stream_.native_handle());
    }
    const bool expects = beast::iequals(message[beast::http::field::expect], "100-continue");
    exchange_ = shared_.make(std::move(header), this->shared_from_this());
    if (exchange_ == nullptr) return Farewell();
    const auto length = parser_->content_length();
    const int64_t size = length ? static_cast<int64_t>(std::min<uint64_t>(*length, INT64_MAX)) : -1;
    if (auto refusal = exchange_->Begin(size)) return Write(std::move(*refusal));
    body_.clear();
    received_ = 0;
    if (!expects || parser_->is_done()) return ReadBody();
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    net::async_write(stream_, net::buffer(kContinue.data(), kContinue.size()),
                     Bind(&Connection::OnContinued));
  }

  void OnContinued(Error error, size_t /*bytes*/) {
    if (error) return Gone();
    ReadBody();
  }

  // What cannot be parsed has no exchange.
  void Reject(Error error) {
    const bool too_long = error == beast::http::error::header_limit;
    struct Nothing final : Exchange {
      std::optional<Answer> Begin(int64_t) override { return std::nullopt; }
      std::optional<Answer> Hold(int64_t) override { return std::nullopt; }
      void OnBody(std::string) override {}
      void OnGone() override {}
    };
    exchange_ = std::make_shared<Nothing>();
    rejected_ = true;
    Write({.status = too_long ? 431 : 400,
           .content_type = "text/plain",
           .body = too_long ? "the header is larger than 16 KiB\n"
                   : error  ? "not HTTP/1.1: " + error.message() + "\n"
                            : "send Content-Length, a number, or Transfer-Encoding, once\n"});
  }

  void ReadBody() {
    if (exchange_ == nullptr) return;  // the time was up
    if (parser_->is_done()) {
      body_.resize(received_);
      Watch();
      return exchange_->OnBody(std::move(body_));
    }
    if (received_ == body_.size()) {
      const auto left = parser_->content_length_remaining();
      size_t size = std::max(kFirstBodyBytes, 2 * body_.size());
      if (left.has_value()) size = std::min(size, received_ + static_cast<size_t>(*left));
      if (auto refusal = exchange_->Hold(static_cast<int64_t>(size))) {
        return Write(std::move(*refusal));
      }
      if (!Guarded([&] { body_.resize(size); }).ok()) return Gone();
    }
    auto& body = parser_->get().body();
    body.data = body_.data() + received_;
    body.size = body_.size() - received_;
    body.more = true;
    reading_ = true;
    beast::http::async_read(stream_, buffer_, *parser_, Bind(&Connection::OnBodyPart));
  }

  void OnBodyPart(Error error, size_t /*bytes*/) {
    reading_ = false;
    if (exchange_ == nullptr) return;
    received_ = body_.size() - parser_->get().body().size;
    if (error == beast::http::error::need_buffer) error = {};
    if (error && IsMalformed(error)) {
      exchange_->OnGone();
      return Reject(error);
    }
    if (error) return Gone();
    ReadBody();
  }

  // Notices a peer that goes away while its answer is computed.
  void Watch() {
    if (std::exchange(watching_, true)) return;
    Lowest().async_wait(net::socket_base::wait_read,
                        [self = this->shared_from_this()](Error error) {
                          self->watching_ = false;
                          if (error || self->exchange_ == nullptr) return;
                          pollfd peer{self->Lowest().native_handle(), POLLRDHUP, 0};
                          if (poll(&peer, 1, 0) > 0) self->Gone();
                        });
  }

  void WriteGiven() {
    if (exchange_ != nullptr) Write(std::move(given_));
  }

  void Write(Answer answer) {
    if (writing_) return;
    writing_ = true;
    answer_ = std::move(answer);
    const auto& request = parser_->get();
    if (!NextPiece()) return Gone();
    const bool chunks = more_ && answer_.length < 0 && request.version() >= 11;
    const bool read = parser_->is_header_done() && parser_->is_done();
    keep_alive_ = read && !rejected_ && parser_->keep_alive() && !shared_.leaving &&
                  (!more_ || chunks || answer_.length >= 0);
    const auto size = more_ ? answer_.length : static_cast<int64_t>(answer_.body.size());
    prefix_ = HeaderText(answer_, size, chunks, keep_alive_);
    suffix_.clear();
    chunked_ = chunks;
    if (request.method() == beast::http::verb::head) {
      answer_.body.clear();
      more_ = chunked_ = false;
    }
    if (chunked_) Frame();
    WritePiece();
  }

  // False if there is no memory for it.
  bool NextPiece() {
    more_ = false;
    return Guarded([&] {
             if (answer_.more != nullptr) more_ = answer_.more(&answer_.body);
           })
        .ok();
  }

  // Makes the piece a chunk, and the last one the end of the body.
  void Frame() {
    char size[16];
    const auto end = std::to_chars(size, size + sizeof(size), answer_.body.size(), 16).ptr;
    prefix_.append(size, end).append("\r\n");
    suffix_ = more_ ? "\r\n" : "\r\n0\r\n\r\n";
  }

  void WritePiece() {
    const std::array<net::const_buffer, 3> buffers = {
        net::buffer(prefix_), net::buffer(answer_.body), net::buffer(suffix_)};
    net::async_write(stream_, buffers, Bind(&Connection::OnWritten));
  }

  void OnWritten(Error error, size_t /*bytes*/) {
    if (error || exchange_ == nullptr) return Gone();
    if (more_) {
      prefix_.clear();
      answer_.body.clear();
      if (!NextPiece()) return Gone();
      if (chunked_) Frame();
      return WritePiece();
    }
    answer_ = {};
    writing_ = false;
    exchange_.reset();
    if (!keep_alive_) return Farewell();
    ReadHeader();
  }

  void Gone() {
    if (exchange_ != nullptr) std::exchange(exchange_, nullptr)->OnGone();
    End();
  }

  void Farewell() {
    if constexpr (std::same_as<Stream, Tls>) {
      // Its reading would get in the way of another.
      if (!reading_ && Lowest().is_open()) {
        reading_ = true;
        EndAfter(kFarewell);
        return stream_.async_shutdown([self = this->shared_from_this()](Error) { self->End(); });
      }
    }
    End();
  }

  // Ends the connection then, unless `timer_` is set anew or cancelled.
  void EndAfter(std::chrono::milliseconds time) {
    timer_.expires_after(time);
    timer_.async_wait([weak = this->weak_from_this()](Error error) {
      const auto self = weak.lock();
      if (error || self == nullptr) return;
      if (self->timer_.expiry() <= std::chrono::steady_clock::now()) self->End();
    });
  }

  // The peer still gets what was written: Connections closes the socket when it has been taken.
  void End() {
    timer_.cancel();
    if (!Lowest().is_open()) return;
    ::shutdown(Lowest().native_handle(), SHUT_RDWR);
    Error ignored;
    Lowest().close(ignored);
  }

  const std::shared_ptr<Shared> owned_;
  Shared& shared_;
  const std::string peer_;
  Stream stream_;
  net::steady_timer timer_{stream_.get_executor()};
  beast::flat_buffer buffer_{kMaxHeaderBytes + (64 << 10)};
  std::optional<beast::http::request_parser<beast::http::buffer_body>> parser_;
  std::shared_ptr<Exchange> exchange_;  // null: between two requests
  std::string body_;
  size_t received_ = 0;  // of it
  Answer given_;         // by Respond, on its way to the strand
  Answer answer_;        // being written
  std::string prefix_, suffix_;
  bool writing_ = false;
  bool more_ = false;     // pieces follow
  bool chunked_ = false;  // they are chunks
  bool keep_alive_ = false;
  bool rejected_ = false;  // what follows on the connection is not a request
  bool watching_ = false;
  bool reading_ = false;  // from the stream
};

}  // namespace castor::server::http
