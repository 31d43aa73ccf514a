// Writes the first corpora of the targets about who gets in: make_access_seeds FOLDER, with a
// folder for each target. Built with CASTOR_FUZZ. No key lies in the tree: of the certificates,
// only seeds without one are checked in.

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
