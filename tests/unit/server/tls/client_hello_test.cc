#include "server/tls/client_hello.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <string>

namespace castor::server {
namespace {

Hello Inspect(const std::string& bytes, TlsVersion least = TlsVersion::k12) {
  return InspectHello(std::as_bytes(std::span(bytes)), least);
}

// What OpenSSL's client says first when it has these versions.
std::string HelloOf(int least, int most) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_min_proto_version(context, least);
  SSL_CTX_set_max_proto_version(context, most);
  SSL* const ssl = SSL_new(context);
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
  SSL_connect(ssl);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(out, &bytes);
  std::string hello(bytes, static_cast<size_t>(size));
  SSL_free(ssl);
  SSL_CTX_free(context);
  return hello;
}

TEST(ClientHelloTest, OffersAreComparedWithTheLeastVersion) {
  const std::string old = HelloOf(TLS1_2_VERSION, TLS1_2_VERSION);
  EXPECT_EQ(Inspect(old, TlsVersion::k12), Hello::kAcceptable);
  EXPECT_EQ(Inspect(old, TlsVersion::k13), Hello::kTooOld);
  for (const int least : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const std::string current = HelloOf(least, TLS1_3_VERSION);
    EXPECT_EQ(Inspect(current, TlsVersion::k12), Hello::kAcceptable);
    EXPECT_EQ(Inspect(current, TlsVersion::k13), Hello::kAcceptable);
  }
}

TEST(ClientHelloTest, EveryBeginningOfOneIsIncomplete) {
  const std::string hello = HelloOf(TLS1_2_VERSION, TLS1_3_VERSION);
  for (size_t size = 0; size < hello.size(); ++size) {
    ASSERT_EQ(Inspect(hello.substr(0, size)), Hello::kIncomplete) << size;
  }
  EXPECT_EQ(Inspect(hello + "more"), Hello::kAcceptable);
}

TEST(ClientHelloTest, FewFragmentsAreAllowed) {
  const std::string hello = HelloOf(TLS1_2_VERSION, TLS1_3_VERSION);
  const std::string body = hello.substr(5);
  const auto in_records = [&](size_t count) {
    std::string bytes;
    for (size_t i = 0; i < count; ++i) {
      const size_t begin = body.size() * i / count;
      const size_t size = body.size() * (i + 1) / count - begin;
      bytes += hello.substr(0, 3) + static_cast<char>(size >> 8) + static_cast<char>(size & 255) +
               body.substr(begin, size);
    }
    return bytes;
  };
  EXPECT_EQ(Inspect(in_records(2)), Hello::kAcceptable);
  EXPECT_EQ(Inspect(in_records(4)), Hello::kAcceptable);
  EXPECT_EQ(Inspect(in_records(5)), Hello::kNotTls);
}

TEST(ClientHelloTest, OtherProtocolsAreKnownAtOnce) {
  for (const char* text : {"PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\n", "\x16\x02", "x", "\x80"}) {
    EXPECT_EQ(Inspect(text), Hello::kNotTls) << text;
  }
  EXPECT_EQ(Inspect("\x16\x03\x01\xff\xff"), Hello::kNotTls) << "longer than a hello may be";
  EXPECT_EQ(Inspect(std::string("\x16\x03\x01\x00\x04zzzz", 9)), Hello::kNotTls);
}

}  // namespace
}  // namespace castor::server
