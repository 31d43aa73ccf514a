#include "server/auth/token_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "server/auth/caller_file.h"
#include "server/auth/tenant.h"
#include "server/auth/token.h"

namespace castor::server {
namespace {

struct TokenFlags {
  std::string name;
  std::vector<std::string> allow;
  int days = 0;
  std::string file;
};

std::string Entry(const TokenFlags& flags, const std::string& token) {
  std::string entry =
      "\n[[caller]]\nname = \"" + flags.name + "\"\nsha256 = \"" + ToHex(DigestOf(token)) + "\"\n";
  if (!flags.allow.empty()) {
    std::string list;
    for (const std::string& name : flags.allow) {
      list.append(list.empty() ? "\"" : ", \"").append(name).append("\"");
    }
    entry += "allow = [" + list + "]\n";
  }
  if (flags.days > 0) {
    const auto ends = std::chrono::system_clock::now() + std::chrono::days(flags.days);
    const std::time_t seconds = std::chrono::system_clock::to_time_t(ends);
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    char text[32];
    entry += "expires = " +
             std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts)) +
             "\n";
  }
  return entry;
}

// A new file that only this user reads.
bool WriteToken(const std::string& path, const std::string& token) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const std::string line = token + "\n";
  const bool written = write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  return (close(file) == 0) && written;
}

int Complain(const std::string& problem, int code) {
  std::fprintf(stderr, "castor-server token: %s\n", problem.c_str());
  return code;
}

int Draw(const TokenFlags& flags) {
  if (!IsTenant(flags.name)) {
    return Complain("a name has 1 to 64 letters, digits, '.', '_', '-'", 2);
  }
  const std::string token = DrawToken();
  const std::string entry = Entry(flags, token);
  if (const auto parsed = ParseCallers(entry); !parsed.ok()) {  // an `allow` that names nothing
    return Complain(std::string(parsed.status().message()), 2);
  }
  if (!flags.file.empty() && !WriteToken(flags.file, token)) {
    return Complain("cannot write a new file " + flags.file + ": " + std::strerror(errno), 1);
  }
  if (std::fputs(entry.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    return Complain("cannot write the entry: " + std::string(std::strerror(errno)), 1);
  }
  if (flags.file.empty()) {
    std::fprintf(stderr, "token for %s, shown this once: %s\n", flags.name.c_str(), token.c_str());
  }
  return 0;
}

}  // namespace

int RunTokenCommand(int argc, const char* const* argv) {
  TokenFlags flags;
  CLI::App app(
      "Draws a token for a caller. The caller's entry for the file of --auth-tokens goes to "
      "standard output; it holds the token's SHA-256, not the token. The token itself goes to "
      "standard error, or to --token-file.\n",
      "castor-server token");
  app.get_formatter()->column_width(34);
  app.add_option("name", flags.name, "The caller's name, which is also its tenant's")
      ->required()
      ->type_name("NAME");
  app.add_option("--allow", flags.allow,
                 "What it may call: package.Service, package.Service/Method, or 'metrics'. "
                 "Repeatable (default: every method)")
      ->type_name("NAME")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--days", flags.days, "How long the token is valid (default: for ever)")
      ->type_name("N")
      ->check(CLI::Range(1, 36500).description(""));
  app.add_option("--token-file", flags.file, "Write the token to this new file, for its owner only")
      ->type_name("FILE");
  app.footer(
      "Example:\n"
      "  castor-server token search --token-file search.token >> callers.toml\n"
      "  castor-server --auth-tokens callers.toml\n"
      "To rotate, add a second entry of the same name, hand out its token, remove the first.\n");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    return app.exit(request);
  } catch (const CLI::Error& error) {
    return Complain(std::string(error.what()) + "; see castor-server token --help", 2);
  }
  try {
    return Draw(flags);
  } catch (const std::exception& error) {
    return Complain(error.what(), 1);
  }
}

}  // namespace castor::server
