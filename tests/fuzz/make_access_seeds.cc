// Writes the first corpora of the targets about who gets in: make_access_seeds FOLDER, with a
// folder for each target. Built with CASTOR_FUZZ. No key lies in the tree: of the certificates,
// only seeds without one are checked in.

#include <openssl/ssl.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/test_authority.h"

namespace {

using namespace castor::testing;

std::string folder;

void Write(const std::string& target, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(folder + "/" + target);
  std::ofstream(folder + "/" + target + "/" + name, std::ios::binary) << bytes;
}

// What a client of these versions says first.
std::string HelloOf(int least, int most) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_min_proto_version(context, least);
  SSL_CTX_set_max_proto_version(context, most);
  SSL* const ssl = SSL_new(context);
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
  SSL_set_tlsext_host_name(ssl, "localhost");
  SSL_connect(ssl);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(out, &bytes);
  std::string hello(bytes, static_cast<size_t>(size));
  SSL_free(ssl);
  SSL_CTX_free(context);
  return hello;
}

// The same in two records.
std::string Split(const std::string& hello, size_t at) {
  const auto record = [&](const std::string& body) {
    return hello.substr(0, 3) + static_cast<char>(body.size() >> 8) +
           static_cast<char>(body.size() & 255) + body;
  };
  return record(hello.substr(5, at)) + record(hello.substr(5 + at));
}

void WriteCertificates() {
  using std::chrono::hours;
  const TestAuthority authority;
  const Subject subject{.common_name = "castor", .dns = {"localhost"}, .ends = hours(24 * 3650)};
  const KeyPair pair = authority.Issue(subject);
  const KeyPair other = authority.Issue(subject);
  const std::string& ca = authority.certificate();
  Write("certificates", "pair", pair.certificate + "%%\n" + pair.key);
  Write("certificates", "mutual", pair.certificate + ca + "%%\n" + pair.key + "%%\n" + ca);
  Write("certificates", "no-pair", pair.certificate + "%%\n" + other.key);
  Write("certificates", "no-key", pair.certificate + "%%\n" + pair.certificate);
  Write("certificates", "no-key-and-authority", pair.certificate + "%%\n%%\n" + ca);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  folder = argv[1];
  WriteCertificates();
  const std::string old_hello = HelloOf(TLS1_2_VERSION, TLS1_2_VERSION);
  const std::string hello = HelloOf(TLS1_2_VERSION, TLS1_3_VERSION);
  Write("client_hello", "tls12", old_hello);
  Write("client_hello", "tls13", hello);
  Write("client_hello", "split", Split(hello, 7));
  Write("client_hello", "half", hello.substr(0, hello.size() / 2));
  Write("client_hello", "http2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  for (const auto& [name, value] : {std::pair{"bearer", "Bearer castor_right"},
                                    {"lower", "bearer  abc"},
                                    {"basic", "Basic Y2FsbGVyOmNhc3Rvcl9yaWdodA=="},
                                    {"odd", "Bearer a b"},
                                    {"empty", ""}}) {
    Write("authorization", name, value);
  }
  const std::string digest(64, 'a');
  const std::string token = "[[caller]]\nname = \"search\"\nsha256 = \"" + digest + "\"\n";
  const std::string anything = "allow = [\"*\"]\nexpires = \"never\"\n";
  Write("callers", "token", token + anything + "[end]\n");
  Write("callers", "no-end", token + anything);
  Write("callers", "all",
        token +
            "allow = [\"castor.v1.ServerService\", \"metrics\"]\nexpires = 2027-05-01T00:00:00Z\n"
            "[[caller]]\nname = \"batch\"\nsan = \"spiffe://example/batch\"\n"
            "allow = [\"*\"]\nexpires = 2027-05-01\n[tenant.search]\nweight = "
            "2.5\nmax_queued_requests = 100\n"
            "max_queued_tokens = 1000\nmax_queued_bytes = \"256MiB\"\n[end]\n");
  Write("callers", "twice", token + anything + token + anything + "[end]\n");
  Write("callers", "unknown", token + anything + "colour = 3\n[end]\n");
  Write("callers", "no-caller", "[tenant.x]\nweight = 1\n");
  Write("callers", "deep", "a = " + std::string(300, '[') + std::string(300, ']'));
  return 0;
}
