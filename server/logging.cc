#include "server/logging.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <spdlog/async.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/mutex.h"

namespace castor::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kQueuedLines = 4096;

// Never changed once published, and never freed: a thread may still be logging with an old one.
// Each refers to its predecessor, so that leak checkers do not report old ones.
struct State {
  LogFormat format = LogFormat::kHuman;
  LogLevel level = LogLevel::kWarning;
  std::shared_ptr<spdlog::logger> logger;
  const State* replaced = nullptr;
};

std::shared_ptr<spdlog::sinks::sink> StandardError() {
  static const auto sink = [] {
    auto made = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    made->set_pattern("%v");  // lines arrive complete
    return made;
  }();
  return sink;
}

std::shared_ptr<spdlog::logger> Synchronous() {
  return std::make_shared<spdlog::logger>("castor", StandardError());
}

std::atomic<const State*>& Current() {
  static std::atomic<const State*> state =
      new State{LogFormat::kHuman, LogLevel::kWarning, Synchronous()};
  return state;
}

void Publish(LogFormat format, LogLevel level, std::shared_ptr<spdlog::logger> logger) {
  const State* replaced = Current().load(std::memory_order_acquire);
  Current().store(new State{format, level, std::move(logger), replaced}, std::memory_order_release);
}

// The writer thread and its queue; null while logging is synchronous.
struct Writer {
  Mutex mu;
  std::shared_ptr<spdlog::details::thread_pool> pool ABSL_GUARDED_BY(mu);
  uint64_t dropped ABSL_GUARDED_BY(mu) = 0;  // dropped by earlier pools
};

Writer& TheWriter() {
  static Writer writer;
  return writer;
}

std::string_view NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

// "2026-01-31T12:00:00.123456Z".
std::string Timestamp(int64_t unix_microseconds) {
  const std::time_t seconds = unix_microseconds / 1'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + length, sizeof(text) - length, ".%06dZ",
                static_cast<int>(unix_microseconds % 1'000'000));
  return text;
}

// JSON text. Bytes that are not UTF-8 become U+FFFD instead of an exception.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Plain where that is unambiguous, else a JSON string.
std::string Quoted(std::string_view text) {
  const bool plain = !text.empty() && text.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_-.:/[]+@%,") == std::string_view::npos;
  return plain ? std::string(text) : Dump(Json(std::string(text)));
}

// The message of a human line: with spaces, without control characters.
std::string OneLine(std::string_view text) {
  const std::string escaped = Dump(Json(std::string(text)));
  const bool as_is = escaped.size() == text.size() + 2;  // nothing but the quotes was added
  return as_is ? std::string(text) : escaped;
}

Json ToJson(const LogValue& value) {
  return std::visit(
      [](const auto& v) {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) {
          return Json();
        } else {
          return Json(v);
        }
      },
      value.value());
}

void Log(LogLevel level, std::string_view message, LogFields fields) {
  const State* state = Current().load(std::memory_order_acquire);
  if (level < state->level) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string line = FormatLogLine(
      state->format, std::chrono::duration_cast<std::chrono::microseconds>(now).count(), level,
      message, fields);
  state->logger->log(spdlog::level::critical, spdlog::string_view_t(line));
}

}  // namespace

void InitLogging(LogFormat format, LogLevel level) {
  auto pool = std::make_shared<spdlog::details::thread_pool>(kQueuedLines, 1);
  auto logger = std::make_shared<spdlog::async_logger>(
      "castor", StandardError(), pool, spdlog::async_overflow_policy::overrun_oldest);
  {
    MutexLock lock(TheWriter().mu);
    TheWriter().pool = std::move(pool);
  }
  Publish(format, level, std::move(logger));
}

void FlushLogging() {
  const State* old = Current().load(std::memory_order_acquire);
  Publish(old->format, old->level, Synchronous());
  std::shared_ptr<spdlog::details::thread_pool> pool;
  {
    MutexLock lock(TheWriter().mu);
    pool = std::move(TheWriter().pool);
    if (pool != nullptr) TheWriter().dropped += pool->overrun_counter();
  }
  // Its destructor writes what is queued and joins the thread.
}

void SendLibraryLogs() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    LogDebug("grpc", {{"severity", gpr_log_severity_string(line->severity)},
                      {"file", line->file},
                      {"line", line->line},
                      {"text", line->message}});
  });
  google::protobuf::SetLogHandler(
      [](google::protobuf::LogLevel, const char* file, int line, const std::string& text) {
        LogDebug("protobuf", {{"file", file}, {"line", line}, {"text", text}});
      });
}

bool Logs(LogLevel level) { return level >= Current().load(std::memory_order_acquire)->level; }

void LogDebug(std::string_view message, LogFields fields) {
  Log(LogLevel::kDebug, message, fields);
}
void LogInfo(std::string_view message, LogFields fields) { Log(LogLevel::kInfo, message, fields); }
void LogWarning(std::string_view message, LogFields fields) {
  Log(LogLevel::kWarning, message, fields);
}
void LogError(std::string_view message, LogFields fields) {
  Log(LogLevel::kError, message, fields);
}

uint64_t DroppedLogLines() {
  Writer& writer = TheWriter();
  MutexLock lock(writer.mu);
  return writer.dropped + (writer.pool == nullptr ? 0 : writer.pool->overrun_counter());
}

std::string FormatLogLine(LogFormat format, int64_t unix_microseconds, LogLevel level,
                          std::string_view message, LogFields fields) {
  if (format == LogFormat::kJson) {
    Json line;
    line["time"] = Timestamp(unix_microseconds);
    line["level"] = std::string(NameOf(level));
    line["message"] = std::string(message);
    for (const auto& [key, value] : fields) {
      if (!value.empty()) line[std::string(key)] = ToJson(value);
    }
    return Dump(line);
  }
  std::string line = Timestamp(unix_microseconds);
  line.append(" ").append(NameOf(level)).append(" ").append(OneLine(message));
  for (const auto& [key, value] : fields) {
    if (value.empty()) continue;
    const auto* text = std::get_if<std::string>(&value.value());
    line.append(" ").append(key).append("=");
    line.append(text != nullptr ? Quoted(*text) : Dump(ToJson(value)));
  }
  return line;
}

}  // namespace castor::server
