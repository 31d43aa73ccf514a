// Requests over HTTP on one connection, with their answers taken apart. Not thread-safe.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "tests/unit/server/http_client.h"

namespace castor::testing {

struct HttpAnswer {
  int status = 0;                                  // 0: the connection ended first
  std::map<std::string, std::string> fields = {};  // names in lower case
  std::string body = {};

  nlohmann::json json() const { return nlohmann::json::parse(body); }
};

class HttpExchange {
 public:
  explicit HttpExchange(int port) : client_(port) {}

  HttpAnswer Get(const std::string& path, const std::string& fields = "") {
    return Send("GET", path, "", fields);
  }
  HttpAnswer Post(const std::string& path, const std::string& body,
                  const std::string& fields = "") {
    return Send("POST", path, body, fields);
  }
  HttpAnswer Send(const std::string& method, const std::string& path, const std::string& body,
                  const std::string& fields) {
    std::string text = method + " " + path + " HTTP/1.1\r\nHost: x\r\n" + fields;
    if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    return client_.Send(text + "\r\n" + body) ? Read() : HttpAnswer();
  }

  // Any bytes.
  bool Write(std::string_view bytes) { return client_.Send(bytes); }

  // The next answer.
  HttpAnswer Read() {
    HttpAnswer answer;
    std::string line = Line();
    if (!line.starts_with("HTTP/1.1 ")) return answer;
    answer.status = std::stoi(line.substr(9));
    while (!(line = Line()).empty()) {
      const size_t colon = line.find(": ");
      answer.fields[absl::AsciiStrToLower(line.substr(0, colon))] = line.substr(colon + 2);
    }
    if (answer.fields.contains("transfer-encoding")) {
      while (const size_t size = std::stoul("0" + Line(), nullptr, 16)) {
        answer.body += Take(size);
        Line();
      }
      Line();
    } else if (answer.fields.contains("content-length")) {
      answer.body = Take(std::stoul(answer.fields["content-length"]));
    }
    return answer;
  }

  // Whether the server has ended the connection.
  bool Ended() {
    char byte;
    return buffer_.empty() && read(client_.descriptor(), &byte, 1) <= 0;
  }

 private:
  bool More() {
    char bytes[16 << 10];
    const ssize_t got = read(client_.descriptor(), bytes, sizeof(bytes));
    if (got > 0) buffer_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }
  std::string Take(size_t size) {
    while (buffer_.size() < size && More()) {
    }
    std::string taken = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return taken;
  }
  // Without its end.
  std::string Line() {
    while (buffer_.find("\r\n") == buffer_.npos && More()) {
    }
    std::string line = Take(std::min(buffer_.find("\r\n"), buffer_.size()));
    Take(2);
    return line;
  }

  server::HttpClient client_;
  std::string buffer_;
};

}  // namespace castor::testing
