#include "server/http/listener.h"

#include <pthread.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <map>
#include <thread>
#include <vector>

#include "server/http/connection.h"
#include "server/logging.h"
#include "server/transport/acceptor.h"

namespace castor::server::http {
namespace {

int HexOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = absl::ascii_tolower(static_cast<unsigned char>(c));
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// A context for connections that begin now. The files were checked when they were read.
std::shared_ptr<net::ssl::context> MakeContext(const Certificates& certificates,
                                               const ListenerSettings& settings) {
  auto context = std::make_shared<net::ssl::context>(net::ssl::context::tls_server);
  const bool only13 = settings.tls_min_version == TlsVersion::k13;
  SSL_CTX_set_min_proto_version(context->native_handle(), only13 ? TLS1_3_VERSION : TLS1_2_VERSION);
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  context->use_certificate_chain(net::buffer(certificates.chain));
  context->use_private_key(net::buffer(certificates.key), net::ssl::context::pem);
  if (!certificates.client_ca.empty() && settings.ask_for_certificates) {
    context->add_certificate_authority(net::buffer(certificates.client_ca));
    context->set_verify_mode(net::ssl::verify_peer | net::ssl::verify_fail_if_no_peer_cert);
  }
  return context;
}

class HttpListener final : public Listener {
 public:
  HttpListener(const ListenerSettings& settings, const LiveCertificates* certificates,
               MakeExchange make, Connections& connections)
      : certificates_(certificates),
        connections_(connections),
        shared_(std::make_shared<Shared>(settings, std::move(make))) {}
  ~HttpListener() override { Stop(); }

  absl::Status Start(Metrics* metrics) {
    if (!connections_.ok()) return absl::UnavailableError("no file descriptor is left (ulimit -n)");
    auto acceptor = Acceptor::Bind(shared_->settings.address);
    if (!acceptor.ok()) return acceptor.status();
    acceptor_ = *std::move(acceptor);
    for (int i = 0; i < shared_->settings.threads; ++i) {
      threads_.emplace_back([this] {
        pthread_setname_np(pthread_self(), "http");
        while (!Guarded([&] { shared_->context.run(); }).ok()) continue;  // Asio had no memory
      });
    }
    acceptor_->Start([this](int, int socket, const sockaddr_storage& from) { Take(socket, from); },
                     &connections_, metrics);
    return absl::OkStatus();
  }

  int port() const override { return acceptor_->port(); }

  void Leave() override {
    acceptor_->StopListening();
    shared_->leaving = true;
    for (const auto& connection : OpenConnections()) connection->EndIfIdle();
  }

  void Stop() override {
    if (acceptor_ == nullptr) return;
    Leave();
    acceptor_->Stop();
    for (const auto& connection : OpenConnections()) connection->Close();
    work_.reset();  // the threads end when no connection waits for anything
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::shared_ptr<OpenConnection>> OpenConnections() {
    std::vector<std::shared_ptr<OpenConnection>> open;  // the last to let go takes the lock
    MutexLock lock(shared_->mu);
    for (const auto& [raw, weak] : shared_->open) {
      if (auto connection = weak.lock()) open.push_back(std::move(connection));
    }
    return open;
  }

  // On the acceptor's thread.
  void Take(int descriptor, const sockaddr_storage& from) {
    const auto family = from.ss_family == AF_INET6 ? net::ip::tcp::v6() : net::ip::tcp::v4();
    const absl::Status taken = Guarded([&] {
      net::ip::tcp::socket socket(net::make_strand(shared_->context));
      socket.assign(family, descriptor);
      std::string peer = NameOfPeer(from).name;
      if (certificates_ == nullptr) {
        std::make_shared<Connection<Plain>>(shared_, std::move(peer), std::move(socket))->Start();
        return;
      }
      const auto now = certificates_->current();
      if (now != given_) {
        tls_ = MakeContext(*now, shared_->settings);
        given_ = now;
      }
      std::make_shared<Connection<Tls>>(shared_, std::move(peer), std::move(socket), *tls_)
          ->Start();
    });
    if (!taken.ok()) LogWarning("connection dropped", {{"error", taken.ToString()}});
  }

  const LiveCertificates* const certificates_;
  Connections& connections_;
  std::shared_ptr<const Certificates> given_;  // those of tls_
  std::shared_ptr<net::ssl::context> tls_;
  std::unique_ptr<Acceptor> acceptor_;
  const std::shared_ptr<Shared> shared_;
  net::executor_work_guard<net::io_context::executor_type> work_{shared_->context.get_executor()};
  std::vector<std::thread> threads_;
};

}  // namespace

std::string PathOf(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!beast::iequals({target.data(), std::min(target.size(), scheme.size())},
                        {scheme.data(), scheme.size()})) {
      continue;
    }
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find('/'), target.size()));
  }
  target = target.substr(0, target.find('?'));
  std::string path;
  for (size_t i = 0; i < target.size(); ++i) {
    const bool coded = target[i] == '%' && i + 2 < target.size() && HexOf(target[i + 1]) >= 0 &&
                       HexOf(target[i + 2]) >= 0;
    const int code = coded ? 16 * HexOf(target[i + 1]) + HexOf(target[i + 2]) : '/';
    if (code == '/') {  // a coded slash is no slash of the path, for proxies neither
      path += target[i];
    } else {
      path += static_cast<char>(code);
      i += 2;
    }
  }
  return path;
}

std::string HeaderText(const Answer& answer, int64_t length, bool chunks, bool keep_alive) {
  const auto reason = beast::http::obsolete_reason(
      beast::http::int_to_status(static_cast<unsigned>(answer.status)));
  std::string text = "HTTP/1.1 " + std::to_string(answer.status) + " " + std::string(reason);
  const auto add = [&text](std::string_view name, std::string_view value) {
    text.append("\r\n").append(name).append(": ").append(value);
  };
  if (!answer.content_type.empty()) add("Content-Type", answer.content_type);
  if (length >= 0) add("Content-Length", std::to_string(length));
  if (chunks) add("Transfer-Encoding", "chunked");
  add("Connection", keep_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : answer.fields) add(name, value);
  return text.append("\r\n\r\n");
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const ListenerSettings& settings,
                                                         const LiveCertificates* certificates,
                                                         MakeExchange make,
                                                         Connections& connections,
                                                         Metrics* metrics) {
  auto listener =
      std::make_unique<HttpListener>(settings, certificates, std::move(make), connections);
  if (absl::Status s = listener->Start(metrics); !s.ok()) return s;
  return listener;
}

}  // namespace castor::server::http
