#include "server/auth/token_command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "server/auth/caller_file.h"
#include "server/auth/tenant.h"
#include "server/auth/token.h"
#include "server/small_file.h"

namespace castor::server {
namespace {

struct TokenFlags {
  std::string name;
  std::vector<std::string> allow{std::string(kEveryMethod)};
  int days = 0;
  std::string file;     // for the token
  std::string callers;  // for the entry; empty: standard output
};

std::string Entry(const TokenFlags& flags, const std::string& token) {
  std::string allow;
  for (const std::string& name : flags.allow) {
    allow.append(allow.empty() ? "\"" : ", \"").append(name).append("\"");
  }
  std::string expires = "\"" + std::string(kNever) + "\"";
  if (flags.days > 0) {
    const auto ends = std::chrono::system_clock::now() + std::chrono::days(flags.days);
    const std::time_t seconds = std::chrono::system_clock::to_time_t(ends);
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    char text[32];
    expires.assign(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts));
  }
  return "[[caller]]\nname = \"" + flags.name + "\"\nsha256 = \"" + ToHex(DigestOf(token)) +
         "\"\nallow = [" + allow + "]\nexpires = " + expires + "\n";
}

// A new file of this text. False, with errno set, where there is one or it cannot be written.
bool WriteNew(const std::string& path, mode_t mode, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) return false;
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fsync(file) == 0;
  return (close(file) == 0) && written;
}

int Complain(const std::string& problem, int code) {
  std::fprintf(stderr, "castor-server token: %s\n", problem.c_str());
  return code;
}

// Adds the entry to the file of callers, which is replaced at once: a server that looks at it never
// sees a part.
absl::Status AddTo(const std::string& path, const std::string& entry) {
  std::error_code error;
  // Of a link, what it leads to.
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  const std::string place = error ? path : target.string();
  struct stat about {};
  const bool exists = stat(place.c_str(), &about) == 0;
  const absl::StatusOr<std::string> old = exists ? ReadSmallFile(place) : std::string();
  if (!old.ok()) return old.status();
  const absl::StatusOr<std::string> text = AddCaller(*old, entry);
  if (!text.ok()) return text.status();
  const std::string fresh = place + ".new";
  if (!WriteNew(fresh, 0644, *text)) {
    return absl::InternalError("cannot write a new file " + fresh + ": " + std::strerror(errno));
  }
  // For the server to read, as it could before.
  const bool same = !exists || (chmod(fresh.c_str(), about.st_mode & 0777) == 0 &&
                                chown(fresh.c_str(), about.st_uid, about.st_gid) == 0);
  if (!same || rename(fresh.c_str(), place.c_str()) != 0) {
    const int why = errno;
    unlink(fresh.c_str());
    return absl::InternalError("cannot be replaced: " + std::string(std::strerror(why)));
  }
  return absl::OkStatus();
}

int Draw(const TokenFlags& flags) {
  if (!IsTenant(flags.name)) {
    return Complain("a name has 1 to 64 letters, digits, '.', '_', '-'", 2);
  }
  const std::string token = DrawToken();
  const std::string entry = Entry(flags, token);
  if (const auto parsed = AddCaller("", entry); !parsed.ok()) {  // an `allow` that names nothing
    return Complain(std::string(parsed.status().message()), 2);
  }
  if (!flags.file.empty() && !WriteNew(flags.file, 0600, token + "\n")) {
    return Complain("cannot write a new file " + flags.file + ": " + std::strerror(errno), 1);
  }
  if (flags.callers.empty()) {
    if (std::fputs(entry.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
      return Complain("cannot write the entry: " + std::string(std::strerror(errno)), 1);
    }
  } else if (const absl::Status added = AddTo(flags.callers, entry); !added.ok()) {
    if (!flags.file.empty()) unlink(flags.file.c_str());  // nobody will know this token
    return Complain(flags.callers + ": " + std::string(added.message()), 1);
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
      "Draws a token for a caller. The caller's entry goes into the file of callers that --add-to "
      "names, or to standard output; it holds the token's SHA-256, not the token. The token itself "
      "goes to standard error, or to --token-file.\n",
      "castor-server token");
  app.get_formatter()->column_width(34);
  app.add_option("name", flags.name, "The caller's name, which is also its tenant's")
      ->required()
      ->type_name("NAME");
  app.add_option("--allow", flags.allow,
                 "What it may call: package.Service, package.Service/Method, '*' for every method, "
                 "or 'metrics'. Repeatable (default: *)")
      ->type_name("NAME")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--days", flags.days, "How long the token is valid (default: for ever)")
      ->type_name("N")
      ->check(CLI::Range(1, 36500).description(""));
  app.add_option("--token-file", flags.file, "Write the token to this new file, for its owner only")
      ->type_name("FILE");
  app.add_option("--add-to", flags.callers,
                 "Add the entry to this file of callers, which need not exist (default: print it; "
                 "it belongs above the file's last line, [end])")
      ->type_name("FILE");
  app.footer(
      "Example:\n"
      "  castor-server token search --token-file search.token --add-to callers.toml\n"
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
