// By ANSI's sequences, which every terminal that is still made understands, and not by ncurses: a
// frame is lines of text, drawn at once, and nothing of what a cursor library offers is used. It
// would bring a terminfo database and locales, which a container's image need not have.
#include "client/top/terminal.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <string_view>

#include "client/top/signals.h"

namespace castor::top {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?25h\x1b[?1049l";
constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// What handlers of signals need: the descriptors, -1 when there is nothing to put back.
std::atomic<int> taken_input = -1, taken_output = -1;
termios former_modes;
struct sigaction former_crashes[std::size(kCrashes)];

void OnCrash(int number, siginfo_t* info, void*) {
  Terminal::RestoreAll();
  for (size_t i = 0; i < std::size(kCrashes); ++i) {
    if (kCrashes[i] == number) sigaction(number, &former_crashes[i], nullptr);
  }
  // What failed fails again when this returns, and then means what it meant before.
  if (info->si_code <= 0) raise(number);
}

void Write(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(descriptor, text.data(), text.size());
    if (put < 0 && errno == EINTR && Signals::Ending() == 0) continue;
    if (put <= 0) return;  // the terminal is gone, or we have to go
    text.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace

Terminal::Terminal(int input, int output)
    : output_(output), keyboard_(isatty(input) == 1 ? input : -1) {
  if (keyboard_ >= 0 && tcgetattr(keyboard_, &former_modes) != 0) keyboard_ = -1;
  struct sigaction action {};
  action.sa_sigaction = OnCrash;
  action.sa_flags = SA_SIGINFO;
  for (size_t i = 0; i < std::size(kCrashes); ++i) {
    sigaction(kCrashes[i], &action, &former_crashes[i]);
  }
  Enter();
}

Terminal::~Terminal() {
  RestoreAll();
  for (size_t i = 0; i < std::size(kCrashes); ++i) {
    sigaction(kCrashes[i], &former_crashes[i], nullptr);
  }
}

void Terminal::Enter() {
  taken_output = output_;
  if (keyboard_ >= 0) {
    termios modes = former_modes;
    modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // ISIG stays: Ctrl-C is a signal
    modes.c_cc[VMIN] = 1;
    modes.c_cc[VTIME] = 0;
    taken_input = keyboard_;
    tcsetattr(keyboard_, TCSADRAIN, &modes);
  }
  Write(output_, kEnter);
}

void Terminal::RestoreAll() {
  const int error = errno;
  if (const int output = taken_output.exchange(-1); output >= 0) {
    (void)!write(output, kLeave.data(), kLeave.size());
  }
  if (const int input = taken_input.exchange(-1); input >= 0) {
    tcsetattr(input, TCSANOW, &former_modes);
  }
  errno = error;
}

void Terminal::Draw(const std::vector<std::string>& lines) const {
  // One write, and nothing is erased before it is written over: no flicker.
  std::string text = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    text += lines[i] + "\x1b[K" + (i + 1 < lines.size() ? "\r\n" : "");
  }
  text += "\x1b[J";
  Write(output_, text);
}

std::string Terminal::ReadKeys() {
  if (keyboard_ < 0) return "";
  pollfd wait{.fd = keyboard_, .events = POLLIN, .revents = 0};
  if (poll(&wait, 1, 0) <= 0) return "";
  char keys[256];
  const ssize_t got = read(keyboard_, keys, sizeof(keys));
  if (got < 0 && errno == EINTR) return "";
  if (got <= 0) {
    keyboard_ = -1;
    return "";
  }
  const std::string_view read_keys(keys, static_cast<size_t>(got));
  return std::string(read_keys.substr(0, read_keys.find('\x1b')));  // arrows and the like: no keys
}

void Terminal::Suspend() {
  RestoreAll();
  raise(SIGSTOP);
  Enter();
}

}  // namespace castor::top
