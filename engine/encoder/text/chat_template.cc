#include "engine/encoder/text/chat_template.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/encoder/text/pair_template.h"

namespace castor::encoder {
namespace {

constexpr size_t kMostBytes = 64 << 10;  // of a template, and of a text that it makes
constexpr int kMostDepth = 20;           // of blocks within each other
constexpr int kMostOperands = 100;       // of an expression

bool IsWord(char c) { return absl::ascii_isalnum(c) || c == '_'; }

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
      const bool between =
          !spelled.empty() && IsWord(spelled.back()) && i + 1 < code.size() && IsWord(code[i + 1]);
      if (!between) continue;
    } else if (quote != 0 && c == '\\') {
      constexpr std::string_view kEscapes = "nt\\'\"", kMeanings = "\n\t\\'\"";
      const size_t which = kEscapes.find(code[++i]);
      if (which == kEscapes.npos) return "";
      c = kMeanings[which];
    }
    spelled.push_back(c);
  }
  return quote == 0 ? spelled : "";
}

std::string TakeWord(std::string_view* rest) {
  if (rest->starts_with(' ')) rest->remove_prefix(1);
  std::string word(rest->begin(), std::ranges::find_if_not(*rest, IsWord));
  rest->remove_prefix(word.size());
  return word;
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

struct Value {
  // kUndefined: a name that has no value. kAbsent: an element that is not there, which prints as an
  // empty text. kUnknown: an error, unless another value is taken.
  enum class Kind { kUndefined, kAbsent, kUnknown, kBool, kText, kList, kObject };
  Kind kind = Kind::kUnknown;
  bool truth = false;  // of kBool; of a list, that it is one of Jinja's generators
  std::string text = {};
  std::vector<Value> items = {};          // of a list or an object
  std::vector<std::string> members = {};  // the names of an object's items
};
using Kind = Value::Kind;
using Variables = std::map<std::string, Value, std::less<>>;

Value Text(std::string text) { return {.kind = Kind::kText, .text = std::move(text)}; }
Value Bool(bool truth) { return {.kind = Kind::kBool, .truth = truth}; }

class Renderer {
 public:
  Renderer(std::string source, const ChatContext& context)
      : source_(std::move(source)), variables_{{"true", Bool(true)}, {"True", Bool(true)}} {
    // transformers gives the last three to every template: False, None, None.
    for (const char* name : {"false", "False", "add_generation_prompt", "tools", "documents"}) {
      variables_[name] = Bool(false);
    }
    for (const auto& [name, text] : context.variables) variables_[name] = Text(text);
    Value& messages = variables_["messages"] = {.kind = Kind::kList};
    const auto add = [&](const char* role, const char* place) {
      Value content = Text(place);
      if (context.structured) {
        content = {.kind = Kind::kList, .items = {Object("type", Text("text"), "text", content)}};
      }
      messages.items.push_back(Object("role", Text(role), "content", content));
    };
    if (context.instruction) add("system", kInstructionPlace);
    add("query", kQueryPlace);
    add("document", kDocumentPlace);
  }

  absl::StatusOr<std::string> Render() {
    if (const std::string stray = Block(/*live=*/true); !stray.empty()) Fail(stray);
    if (error_.empty()) return std::move(out_);
    const auto line = 1 + std::count(source_.begin(), source_.begin() + tag_, '\n');
    return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", error_));
  }

 private:
  static Value Object(const char* first, Value its, const char* second, Value other) {
    return {.kind = Kind::kObject,
            .items = {std::move(its), std::move(other)},
            .members = {first, second}};
  }

  void Fail(std::string_view code) {
    if (!error_.empty()) return;
    error_ = absl::StrCat("\"", absl::StripAsciiWhitespace(std::string(code)).substr(0, 60),
                          "\" is not supported, not defined, or depends on the texts");
  }

  // Renders, or if not `live` skips, up to a tag that ends or divides the block around it. Returns
  // its word, and keeps the code after it in `condition_`; empty: the source has ended.
  std::string Block(bool live) {
    std::string word;
    if (++depth_ > kMostDepth) Fail("a block in a block");
    while (at_ < source_.size() && error_.empty() && word.empty()) {
      OwnText(live);
      tag_ = at_;
      if (at_ < source_.size()) word = Tag(live);
      if (out_.size() > kMostBytes) error_ = "makes too long a text";
    }
    --depth_;
    return word;
  }

  // The text before the next tag, without the spaces that Jinja drops with transformers' settings,
  // trim_blocks and lstrip_blocks.
  void OwnText(bool live) {
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
    if (live) out_.append(text);
  }

  std::string Tag(bool live) {
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
    if (end >= source_.size()) return error_ = "has a tag without an end", "";
    const auto is_sign = [&](size_t i) { return source_[i] == '-' || source_[i] == '+'; };
    const char sign = end > from && is_sign(end - 1) ? source_[--end] : ' ';
    if (from < end && is_sign(from)) ++from;
    const std::string code = source_.substr(from, end - from);
    while (sign == '-' && at_ < source_.size() && absl::ascii_isspace(source_[at_])) ++at_;
    if (kind != '{' && sign == ' ' && source_.compare(at_, 1, "\n") == 0) ++at_;
    return kind == '#' ? "" : Run(live, kind == '{', code);
  }

  // Returns the tag's word if it ends or divides the block around it.
  std::string Run(bool live, bool output, const std::string& code) {
    const std::string spelled = Respell(code);
    std::string_view rest = spelled;
    if (output) {
      if (!live) return "";
      const Value value = Evaluate(code, rest);
      if (value.kind != Kind::kText && value.kind != Kind::kAbsent) Fail(code);
      out_.append(value.text);
      return "";
    }
    const std::string word = TakeWord(&rest);
    if (word == "if") {
      If(live, code, rest);
    } else if (word == "set" && live) {
      const std::string name = TakeWord(&rest);
      if (name.empty() || !Take(&rest, {"="})) Fail(code);
      Value& value = variables_[name] = Evaluate(code, rest);
      // A generator could be read once only.
      if (value.kind == Kind::kUnknown || (value.kind == Kind::kList && value.truth)) Fail(code);
    } else if (word == "elif" || word == "else" || word == "endif") {
      condition_ = rest;
      return word;
    } else if (word != "set" || rest.find('=') == rest.npos) {
      Fail(code);
    }
    return "";
  }

  // Computes an expression.
  Value Evaluate(std::string_view code, std::string_view expression, bool* truth = nullptr) {
    rest_ = expression;
    fault_ = false;
    operands_ = 0;
    Value value = truth == nullptr ? Read() : Operands(/*of_or=*/true);
    if (truth != nullptr) *truth = Truth(value);
    if (fault_ || !rest_.empty()) Fail(code);
    return value;
  }

  // With conditions: a if b else c.
  Value Read() {
    Value value = Operands(/*of_or=*/true);
    if (!fault_ && Word("if")) {
      const bool taken = Truth(Operands(/*of_or=*/true));
      const Value other = Word("else") ? Read() : Value{Kind::kAbsent};
      if (!taken) value = other;
    }
    return value;
  }

  bool Truth(const Value& value) {
    fault_ |= value.kind == Kind::kUnknown;
    if (value.kind != Kind::kText) return value.truth || !value.items.empty();
    // An instruction that is there is never empty. A query or a document may be.
    std::string_view text = value.text;
    while (Take(&text, {kQueryPlace, kDocumentPlace})) {
    }
    fault_ |= text.empty() && !value.text.empty();
    return !text.empty();
  }

  bool Word(std::string_view word) {
    std::string_view after = rest_;
    if (TakeWord(&after) != word) return false;
    rest_ = after;
    return true;
  }

  // The operand of `or`, or of `and`, that decides.
  Value Operands(bool of_or) {
    Value value = of_or ? Operands(false) : Sum();
    while (!fault_ && Word(of_or ? "or" : "and")) {
      const bool decides = Truth(value) == of_or;
      const Value other = of_or ? Operands(false) : Sum();
      if (!decides) value = other;
    }
    return value;
  }

  Value Sum() {
    Value value = Operand();
    while (!fault_ && Take(&rest_, {"+"})) {
      const Value right = Operand();
      const bool texts = value.kind == Kind::kText && right.kind == Kind::kText;
      value = texts ? Text(value.text + right.text) : Value();
    }
    return value;
  }

  Value Operand() {
    fault_ |= ++operands_ > kMostOperands;
    if (fault_) return Value();
    if (Word("not")) return Bool(!Truth(Operand()));
    Value value;
    if (Take(&rest_, {"("})) {
      value = Read();
      fault_ |= !Take(&rest_, {")"});
    } else if (Take(&rest_, {"\2"})) {
      value = Text(Quoted());
    } else {
      const std::string name = TakeWord(&rest_);
      const auto found = variables_.find(name);
      value = found == variables_.end() ? Value{Kind::kUndefined} : found->second;
      fault_ |= name.empty() || absl::ascii_isdigit(name[0]) || name == "none" || name == "None";
    }
    while (!fault_) {
      if (const bool dot = Take(&rest_, {"."}); dot || Take(&rest_, {"[\2"})) {
        value = Member(value, dot ? TakeWord(&rest_) : Quoted());
        fault_ |= !dot && !Take(&rest_, {"]"});
      } else if (Take(&rest_, {"[0]", "[1]", "[2]"})) {
        const auto index = static_cast<size_t>(*(rest_.data() - 2) - '0');
        const bool there = index < value.items.size();
        value = value.kind != Kind::kList || value.truth ? Value()
                : there                                  ? Value(value.items[index])
                                                         : Value{Kind::kAbsent};
      } else if (Take(&rest_, {"|"})) {
        value = Filter(value, TakeWord(&rest_));
      } else if (Word("is")) {
        const bool negated = Word("not"), defined = Word("defined");
        fault_ |= !defined && !Word("string");
        const bool holds = defined ? value.kind > Kind::kUnknown : value.kind == Kind::kText;
        if (value.kind != Kind::kUnknown) value = Bool(holds != negated);
      } else {
        break;
      }
    }
    return value;
  }

  std::string Quoted() {
    std::string text(rest_.substr(0, rest_.find('\2')));
    rest_.remove_prefix(std::min(rest_.size(), text.size() + 1));
    return text;
  }

  static Value Member(const Value& value, std::string_view name) {
    const auto found = std::ranges::find(value.members, name);
    if (found != value.members.end()) return value.items[found - value.members.begin()];
    return Value{value.kind == Kind::kObject ? Kind::kAbsent : Kind::kUnknown};
  }

  Value Filter(const Value& value, const std::string& name) {
    if (name == "default" || name == "d") {
      fault_ |= !Take(&rest_, {"("});
      const Value other = Read();
      const bool or_empty = Take(&rest_, {",true", ",True"});
      fault_ |= !Take(&rest_, {")"});
      if (value.kind == Kind::kUnknown) return value;
      return (or_empty ? Truth(value) : value.kind > Kind::kUnknown) ? value : other;
    }
    if (name == "trim") {
      if (value.kind != Kind::kText || value.text.find('\1') != value.text.npos) return Value();
      return Text(std::string(absl::StripAsciiWhitespace(value.text)));
    }
    if (name == "list" && value.kind == Kind::kList) {
      return {.kind = Kind::kList, .items = value.items};
    }
    if (name == "first" && value.kind == Kind::kList) {
      return value.items.empty() ? Value{Kind::kAbsent} : Value(value.items[0]);
    }
    const bool maps = name == "map" && Take(&rest_, {"(attribute=\2"});
    fault_ |= (!maps && (name != "selectattr" || !Take(&rest_, {"(\2role\2,\2"})));
    const std::string operation = Quoted();  // or the attribute
    fault_ |= !maps && ((operation != "eq" && operation != "equalto" && operation != "==") ||
                        !Take(&rest_, {",\2"}));
    const std::string role = maps ? "" : Quoted();
    fault_ |= !Take(&rest_, {")"});
    if (value.kind != Kind::kList) return Value();
    Value made{Kind::kList, /*truth=*/true};
    for (const Value& item : value.items) {
      if (maps)
        made.items.push_back(Member(item, operation));
      else if (Member(item, "role").text == role)
        made.items.push_back(item);
    }
    return made;
  }

  void If(bool live, const std::string& code, std::string_view rest) {
    bool taken = false, done = !live;
    std::string word = "elif";
    condition_ = rest;
    for (bool last = false; !last && (word == "elif" || word == "else"); word = Block(taken)) {
      last = taken = word == "else";
      if (!last && !done) Evaluate(code, condition_, &taken);
      taken &= !done;
      done |= taken;
    }
    if (word != "endif") Fail(code);
  }

  const std::string source_;
  Variables variables_;
  size_t at_ = 0, tag_ = 0;
  int depth_ = 0, operands_ = 0;
  std::string_view rest_;  // of the expression
  bool fault_ = false;     // it cannot be read, or what it takes is not known
  std::string condition_, error_, out_;
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
