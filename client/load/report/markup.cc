#include "client/load/report/markup.h"

#include "client/cli/text.h"

namespace castor::load {

std::string EscapeMarkup(std::string_view text) {
  std::string escaped;
  for (const char c : cli::CleanText(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

void Markup::Begin(std::string_view element, Attributes attributes) {
  text_ += '<';
  text_ += element;
  for (const auto& [name, value] : attributes) {
    if (value.empty()) continue;
    text_ += ' ';
    text_ += name;
    text_ += "=\"" + EscapeMarkup(value) + "\"";
  }
}

Markup& Markup::Open(std::string_view element, Attributes attributes) {
  Begin(element, attributes);
  text_ += '>';
  open_.emplace_back(element);
  return *this;
}

Markup& Markup::Close() {
  text_ += "</" + open_.back() + ">";
  open_.pop_back();
  return *this;
}

Markup& Markup::Text(std::string_view text) {
  text_ += EscapeMarkup(text);
  return *this;
}

Markup& Markup::Put(std::string_view element, std::string_view text, Attributes attributes) {
  return Open(element, attributes).Text(text).Close();
}

Markup& Markup::Empty(std::string_view element, Attributes attributes) {
  Begin(element, attributes);
  text_ += "/>";
  return *this;
}

Markup& Markup::Add(std::string_view markup) {
  text_ += markup;
  return *this;
}

Markup& Markup::NewLine() {
  text_ += '\n';
  return *this;
}

}  // namespace castor::load
