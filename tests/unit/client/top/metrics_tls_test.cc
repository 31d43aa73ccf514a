// Pages over TLS from servers that ask for a client's certificate.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include "client/file.h"
#include "client/top/fleet.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_authority.h"
#include "tests/unit/client/canned_server.h"

namespace castor::top {
namespace {

using castor::testing::KeyPair;
using castor::testing::TestAuthority;
using ::testing::HasSubstr;

// Answers callers who have a certificate of `authorities`, in a file, and refuses the others.
class StrictServer {
 public:
  StrictServer(const std::string& certificate, const std::string& key,
               const std::string& authorities)
      : context_(SSL_CTX_new(TLS_server_method()), SSL_CTX_free) {
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    EXPECT_EQ(SSL_CTX_load_verify_file(context_.get(), authorities.c_str()), 1);
    EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context_.get(), certificate.c_str()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context_.get(), key.c_str(), SSL_FILETYPE_PEM), 1);
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~StrictServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string address() const { return "localhost:" + port_; }

 private:
  void Serve() {
    for (int caller; (caller = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context_.get()), SSL_free);
      SSL_set_fd(session.get(), caller);
      char request[4096];
      if (SSL_accept(session.get()) == 1 && SSL_read(session.get(), request, sizeof(request)) > 0) {
        const std::string page = client::Http("200 OK", "castor_ready 1\n");
        SSL_write(session.get(), page.data(), static_cast<int>(page.size()));
        SSL_shutdown(session.get());
      }
      shutdown(caller, SHUT_WR);
      while (recv(caller, request, sizeof(request), 0) > 0) {  // lest a reset takes the alert away
      }
      close(caller);
    }
  }

  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  int listener_ = -1;
  std::string port_;
  std::thread thread_;
};

class MetricsTlsTest : public ::testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& text) {
    EXPECT_TRUE(client::WriteFile(folder_ / name, {text}).ok());
    return folder_ / name;
  }

  // "" if the page comes.
  std::string Problem(const client::TlsOptions& files) const {
    client::ClientOptions options;
    options.tls = files;
    auto fleet = Fleet::Create({server_.address()}, options);
    if (!fleet.ok()) return std::string(fleet.status().message());
    (*fleet)->StartRound();
    while (!(*fleet)->IsRoundComplete()) (*fleet)->Wait(std::chrono::milliseconds(1000));
    return (*fleet)->Problem();
  }

  TemporaryFolder folder_;
  const TestAuthority authority_, other_{"another"};
  const KeyPair pair_ = authority_.IssueForLocalhost();
  const KeyPair me_ = authority_.Issue({.common_name = "me"});
  const KeyPair stranger_ = other_.Issue({.common_name = "me"});
  const std::string ca_ = File("ca", authority_.certificate());
  const StrictServer server_{File("server", pair_.certificate), File("server.key", pair_.key), ca_};
};

TEST_F(MetricsTlsTest, AClientsCertificateIsShown) {
  const std::string certificate = File("me", me_.certificate), key = File("me.key", me_.key);
  EXPECT_EQ(Problem({.ca_file = ca_, .certificate_file = certificate, .key_file = key}), "");
  EXPECT_THAT(Problem({.ca_file = ca_}), HasSubstr("see --cert and --cert-key"));
  EXPECT_THAT(Problem({.ca_file = ca_,
                       .certificate_file = File("stranger", stranger_.certificate),
                       .key_file = File("stranger.key", stranger_.key)}),
              HasSubstr(server_.address()));
  EXPECT_THAT(Problem({.ca_file = ca_, .certificate_file = certificate}), HasSubstr("key"));
  EXPECT_THAT(Problem({.ca_file = File("other", other_.certificate()),
                       .certificate_file = certificate,
                       .key_file = key}),
              HasSubstr("see --ca"));
}

}  // namespace
}  // namespace castor::top
