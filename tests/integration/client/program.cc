#include "tests/integration/client/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string_view>

namespace castor::testing {
namespace {

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Ended RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<std::pair<std::string, std::string>>& variables,
                 const std::string& folder) {
  std::vector<std::string> words = {program}, environment;
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view name = *variable;
    if (name.starts_with("CASTOR_") || name.starts_with("SSL_CERT_")) continue;
    environment.emplace_back(name);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);

  const std::string out = folder + "/out", err = folder + "/err";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), kNew, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), kNew, 0600);
  pid_t process = -1;
  const int failed = posix_spawn(&process, program.c_str(), &actions, nullptr,
                                 Pointers(words).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return {};
  int status = 0;
  waitpid(process, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), Content(out),
          Content(err)};
}

}  // namespace castor::testing
