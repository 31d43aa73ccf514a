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
#include <vector>

#include "server/auth/caller_file.h"
#include "server/auth/caller_table.h"
#include "server/auth/live_files.h"
#include "server/auth/token.h"
#include "server/options/option_kinds.h"

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

// A new file; below 0, with errno set, where there is one or it cannot be made.
int MakeNew(const std::string& path, mode_t mode) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
}

// False, with errno set, where the text is not wholly on disk.
bool WriteAndClose(int file, const std::string& text) {
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fsync(file) == 0;
  return (close(file) == 0) && written;
}

int Complain(const std::string& problem, int code) {
  std::fprintf(stderr, "castor-server token: %s\n", problem.c_str());
  return code;
}

absl::Status Failed(const std::string& what) {
  return absl::InternalError(what + ": " + std::strerror(errno));
}

// Writes what is at `path`, and the entry, to `file` at `fresh`, and puts that in its place at
// once: a server that looks never sees a part.
absl::Status Replace(const std::string& path, int file, const std::string& fresh,
                     const std::string& entry) {
  struct stat about {};
  const bool exists = stat(path.c_str(), &about) == 0;
  const absl::StatusOr<std::string> old = exists ? ReadSmallFile(path) : std::string();
  const absl::StatusOr<std::string> text = old.ok() ? AddCaller(*old, entry) : old;
  if (!WriteAndClose(file, text.value_or(""))) return Failed("cannot write " + fresh);
  if (!text.ok()) return text.status();
  // For the server to read, as it could before.
  const bool same = !exists || (chmod(fresh.c_str(), about.st_mode & 0777) == 0 &&
                                chown(fresh.c_str(), about.st_uid, about.st_gid) == 0);
  if (!same || rename(fresh.c_str(), path.c_str()) != 0) return Failed("cannot be replaced");
  return absl::OkStatus();
}

// Adds the entry to the file of callers.
absl::Status AddTo(const std::string& path, const std::string& entry) {
  std::error_code error;
  // Follow a link: the file that it leads to is replaced.
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  const std::string place = error ? path : target.string();
  // Made before the file is read: of two commands at the same time, the second fails here.
  const std::string fresh = place + ".new";
  const int file = MakeNew(fresh, 0644);
  if (file < 0) return Failed("cannot create " + fresh);
  const absl::Status replaced = Replace(place, file, fresh, entry);
  if (!replaced.ok()) unlink(fresh.c_str());
  return replaced;
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
  if (!flags.file.empty()) {
    const int file = MakeNew(flags.file, 0600);
    if (file < 0 || !WriteAndClose(file, token + "\n")) {
      return Complain("cannot write a new file " + flags.file + ": " + std::strerror(errno), 1);
    }
  }
  if (flags.callers.empty()) {
    if (std::fputs(entry.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
      return Complain("cannot write the entry: " + std::string(std::strerror(errno)), 1);
    }
  } else if (const absl::Status added = AddTo(flags.callers, entry); !added.ok()) {
    if (!flags.file.empty()) unlink(flags.file.c_str());  // a token that no file knows
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
      "Creates a random token for a caller. The caller's entry, which holds the token's SHA-256, "
      "goes to the file of --add-to, or to standard output. The token itself goes to --token-file, "
      "or to standard error.\n",
      "castor-server token");
  app.get_formatter()->column_width(34);
  app.add_option("name", flags.name, "The caller's name, which is also its tenant's")
      ->required()
      ->type_name("NAME");
  app.add_option("--allow", flags.allow,
                 "What the caller may call: package.Service, package.Service/Method, '*' for every "
                 "method, or 'metrics'. Repeatable (default: *)")
      ->type_name("NAME")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--days", flags.days, "Days until the token expires (default: never)")
      ->type_name("N")
      ->check(CLI::Range(1, 36500).description(""));
  app.add_option("--token-file", flags.file,
                 "Write the token to this new file, readable only by its owner")
      ->type_name("FILE");
  app.add_option("--add-to", flags.callers,
                 "Add the entry to this file of callers, which is created if missing (default: "
                 "print it; it belongs above the file's last line, [end])")
      ->type_name("FILE");
  app.footer(
      "Example:\n"
      "  castor-server token search --token-file search.token --add-to callers.toml\n"
      "  castor-server --auth-tokens callers.toml\n"
      "To rotate: add a second entry of the same name, hand out its token, then remove the first "
      "entry.\n");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    return app.exit(request);
  } catch (const CLI::Error& error) {
    return Complain(error.what() + DidYouMean(app, error) + "; see castor-server token --help", 2);
  }
  try {
    return Draw(flags);
  } catch (const std::exception& error) {
    return Complain(error.what(), 1);
  }
}

}  // namespace castor::server
