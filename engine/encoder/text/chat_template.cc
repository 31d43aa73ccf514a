#include "engine/encoder/text/chat_template.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/encoder/text/pair_template.h"

namespace castor::encoder {
namespace {

constexpr size_t kMostBytes = 64 << 10;  // of a template, and of a text that it makes
constexpr int kMostDepth = 20;           // of defaults within each other

// The code in one spelling: strings are between characters 2, and around other words is no space.
// Empty if it has an unknown escape.
std::string Respell(std::string_view code) {
  std::string spelled;
  char quote = 0;
  for (size_t i = 0; i < code.size(); ++i) {
    char c = code[i];
    if (quote == 0 ? c == '"' || c == '\'' : c == quote) {
      quote = quote == 0 ? c : 0;
      c = '\2';
    } else if (quote == 0 && absl::ascii_isspace(c)) {
      const bool between = !spelled.empty() && absl::ascii_isalnum(spelled.back()) &&
                           i + 1 < code.size() && absl::ascii_isalnum(code[i + 1]);
      if (!between) continue;
    } else if (quote != 0 && c == '\\') {
      constexpr std::string_view kEscapes = "nt\\'\"", kMeanings = "\n\t\\'\"";
      const size_t which = kEscapes.find(code[++i]);
      if (which == kEscapes.npos) return "";
      c = kMeanings[which];
    }
    spelled.push_back(c);
  }
  return spelled;
}

// Takes the first of these that `rest` begins with.
bool Take(std::string_view* rest, std::initializer_list<std::string_view> of) {
  for (const std::string_view text : of) {
    if (!rest->starts_with(text)) continue;
    rest->remove_prefix(text.size());
    return true;
  }
  return false;
}

class Renderer {
 public:
  Renderer(std::string source, const ChatContext& context)
      : source_(std::move(source)),
        context_(context),
        variables_(context.variables.begin(), context.variables.end()) {}

  absl::StatusOr<std::string> Render() {
    while (at_ < source_.size() && error_.empty()) {
      OwnText();
      tag_ = at_;
      if (at_ < source_.size()) Tag();
      if (out_.size() > kMostBytes) error_ = "makes too long a text";
    }
    if (error_.empty()) return std::move(out_);
    const auto line = 1 + std::count(source_.begin(), source_.begin() + tag_, '\n');
    return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", error_));
  }

 private:
  // The text before the next tag, without the spaces that Jinja drops with transformers' settings,
  // trim_blocks and lstrip_blocks.
  void OwnText() {
    size_t end = source_.size();
    for (const char* tag : {"{{", "{%", "{#"}) end = std::min(end, source_.find(tag, at_));
    std::string text = source_.substr(at_, end - at_);
    const std::string_view tag = std::string_view(source_).substr(end, 3);
    if (tag.ends_with('-')) {
      absl::StripTrailingAsciiWhitespace(&text);
    } else if (!tag.empty() && !tag.starts_with("{{") && !tag.ends_with('+')) {
      const size_t line = text.rfind('\n') + 1;  // 0: it has no newline
      const bool whole = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
      if (whole && text.find_first_not_of(" \t\v\f", line) == text.npos) text.resize(line);
    }
    at_ = end;
    out_.append(text);
  }

  void Tag() {
    const char kind = source_[at_ + 1];
    const std::string ends{kind == '{' ? '}' : kind, '}'};
    size_t from = at_ + 2, end = from;
    for (char quote = 0; end < source_.size(); ++end) {
      const char c = source_[end];
      if (quote == 0 && source_.compare(end, 2, ends) == 0) break;
      if (quote != 0 && c == '\\')
        ++end;
      else if (quote != 0 ? c == quote : kind != '#' && (c == '"' || c == '\''))
        quote ^= c;
    }
    at_ = std::min(end + 2, source_.size());
    if (end >= source_.size()) return void(error_ = "has a tag without an end");
    const auto is_sign = [&](size_t i) { return source_[i] == '-' || source_[i] == '+'; };
    const char sign = end > from && is_sign(end - 1) ? source_[--end] : ' ';
    if (from < end && is_sign(from)) ++from;
    if (kind != '#') Run(kind == '{', source_.substr(from, end - from));
    while (sign == '-' && at_ < source_.size() && absl::ascii_isspace(source_[at_])) ++at_;
    if (kind != '{' && sign == ' ' && source_.compare(at_, 1, "\n") == 0) ++at_;
  }

  void Run(bool output, const std::string& code) {
    std::string spelled = Respell(code), name;
    std::string_view rest = spelled;
    if (!output && Take(&rest, {"set "})) name = rest.substr(0, rest.find('='));
    rest.remove_prefix(std::min(rest.size(), output ? 0 : name.size() + 1));
    const std::optional<std::string> value = Term(&rest, 0);
    if (spelled.empty() || !rest.empty() || output != name.empty()) {
      error_ = absl::StrCat("\"", absl::StripAsciiWhitespace(code).substr(0, 60),
                            "\" is not supported, or not defined");
    } else if (output) {
      out_.append(value.value_or(""));
    } else {
      variables_[name] = value;
    }
  }

  // Takes a string, a name or a role's content; nullopt: Jinja's undefined. If it cannot be read,
  // or a name has neither a value nor a default, `rest` becomes "?".
  std::optional<std::string> Term(std::string_view* rest, int depth) {
    std::optional<std::string> value;
    std::string_view after = *rest;
    bool known = true;
    if (Take(&after, {"\2"})) {
      value = after.substr(0, after.find('\2'));
      after.remove_prefix(value->size() + 1);
    } else if (!Content(&after, &value)) {
      const std::string_view name = after.substr(0, after.find_first_of("|),"));
      const auto found = variables_.find(name);
      known = found != variables_.end();
      if (known) value = found->second;
      after.remove_prefix(name.size());
    }
    while (depth < kMostDepth && Take(&after, {"|default(", "|d("})) {
      const std::optional<std::string> other = Term(&after, depth + 1);
      const bool or_empty = Take(&after, {",true", ",True"});
      known = Take(&after, {")"});
      if (!known) break;
      if (!value.has_value() || (or_empty && value->empty())) value = other;
    }
    *rest = known ? after : "?";
    return value;
  }

  // The content of a role's first message, in any of its spellings.
  bool Content(std::string_view* rest, std::optional<std::string>* value) const {
    std::string_view after = *rest;
    const bool open = Take(&after, {"("});
    if (!Take(&after, {"messages|selectattr(\2role\2,\2"}) ||
        !Take(&after, {"eq\2,\2", "equalto\2,\2", "==\2,\2"})) {
      return false;
    }
    const char* place = Take(&after, {"system\2)"})     ? kInstructionPlace
                        : Take(&after, {"query\2)"})    ? kQueryPlace
                        : Take(&after, {"document\2)"}) ? kDocumentPlace
                                                        : nullptr;
    Take(&after, {"|list"});
    const bool mapped = Take(&after, {"|map(attribute=\2content\2)"});
    if (place == nullptr || !Take(&after, {"|first"}) || (open && !Take(&after, {")"})))
      return false;
    // The members of a message that is not there are an error in Jinja.
    const bool there = place != kInstructionPlace || context_.instruction;
    if (!mapped && (!there || !Take(&after, {".content", "[\2content\2]"}))) return false;
    if (context_.structured && (!there || !Take(&after, {"[0].text", "[0][\2text\2]"})))
      return false;
    if (there) *value = place;
    *rest = after;
    return true;
  }

  const std::string source_;
  const ChatContext& context_;
  std::map<std::string, std::optional<std::string>, std::less<>> variables_;
  size_t at_ = 0, tag_ = 0;
  std::string error_, out_;
};

}  // namespace

absl::StatusOr<std::string> RenderChatTemplate(std::string_view source,
                                               const ChatContext& context) {
  if (source.size() > kMostBytes || source.find_first_of("\1\2") != source.npos) {
    return absl::InvalidArgumentError("is longer than 64 KiB, or holds control characters");
  }
  // Jinja reads every end of a line as \n, and drops the last.
  std::string lines = absl::StrReplaceAll(std::string(source), {{"\r\n", "\n"}, {"\r", "\n"}});
  if (lines.ends_with('\n')) lines.pop_back();
  return Renderer(std::move(lines), context).Render();
}

}  // namespace castor::encoder
