// The server's log: one line for each event, a fixed message and fields, to standard error.
//
//   LogInfo("listening", {{"grpc", address}, {"metrics", port}});
//
// Every function may be called from any thread and never waits for the terminal or the pipe behind
// standard error: lines go through a bounded queue to a writer thread. When the reader is too slow,
// the oldest are dropped and counted.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace castor::server {

enum class LogFormat { kHuman, kJson };
enum class LogLevel { kDebug, kInfo, kWarning, kError };

// A field's value, of a JSON type; or none, and the line omits the field.
class LogValue {
 public:
  LogValue(std::string_view text) : value_(std::string(text)) {}  // NOLINT: implicit by design
  LogValue(const char* text) : value_(std::string(text)) {}       // NOLINT
  LogValue(std::string text) : value_(std::move(text)) {}         // NOLINT
  LogValue(bool value) : value_(value) {}                         // NOLINT
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  LogValue(T value) {  // NOLINT
    if constexpr (std::is_floating_point_v<T>) {
      value_ = static_cast<double>(value);
    } else {
      value_ = static_cast<int64_t>(value);
    }
  }

  // None if the text is empty.
  static LogValue IfAny(std::string text) {
    LogValue value(std::move(text));
    if (std::get<std::string>(value.value_).empty()) value.value_ = std::monostate();
    return value;
  }

  using Value = std::variant<std::monostate, std::string, bool, int64_t, double>;
  bool empty() const { return std::holds_alternative<std::monostate>(value_); }
  const Value& value() const { return value_; }

 private:
  Value value_;
};

using LogFields = std::initializer_list<std::pair<std::string_view, LogValue>>;

// Starts the writer thread. Call once, early in main, before other threads log. Until then, and in
// programs that never call it, warnings and errors are written synchronously in the human format.
void InitLogging(LogFormat format, LogLevel level);

// Writes what is queued and stops the writer; call last in main. Later lines are written
// synchronously.
void FlushLogging();

// Sends the log lines of gRPC and protobuf to this log, as debug lines, instead of to standard
// error in formats of their own: most of what they call an error is caused by a client, or reported
// here with more context. Call once, before they are used.
void SendLibraryLogs();

// Whether lines of this level are written: to spare a hot path the fields of those that are not.
bool Logs(LogLevel level);

void LogDebug(std::string_view message, LogFields fields = {});
void LogInfo(std::string_view message, LogFields fields = {});
void LogWarning(std::string_view message, LogFields fields = {});
void LogError(std::string_view message, LogFields fields = {});

// Lines that were dropped because standard error was too slow.
uint64_t DroppedLogLines();

// One line without its end, at `unix_microseconds`. Both formats keep any text on one line and
// valid UTF-8. The functions above use it; exposed for tests.
std::string FormatLogLine(LogFormat format, int64_t unix_microseconds, LogLevel level,
                          std::string_view message, LogFields fields);

}  // namespace castor::server
