#include "client/cli/attend/kernel_flags.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_replace.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "castor/v1/kernel.pb.h"
#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"

namespace castor::cli {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;

[[noreturn]] void Refuse(const std::string& what) { throw CLI::ValidationError(what); }

std::string Dashed(const std::string& name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", "-"}});
}

// Joins the names of at(first) to at(count - 1).
template <typename At>
std::string NamesOf(int count, const At& at, const char* between, int first = 0) {
  std::string names;
  for (int i = first; i < count; ++i) {
    names += (names.empty() ? "" : between) + Dashed(at(i)->name());
  }
  return names;
}

template <typename Request>
const OneofDescriptor& KernelsOf() {
  return *Request::descriptor()->FindOneofByName("kernel");
}

// Splits at commas, and each word at its first equals sign.
std::vector<std::pair<std::string, std::string>> WordsOf(std::string_view kernel) {
  std::vector<std::pair<std::string, std::string>> words;
  for (;;) {
    const std::string_view word = kernel.substr(0, kernel.find(','));
    const size_t equals = std::min(word.find('='), word.size());
    words.emplace_back(Dashed(std::string(word.substr(0, equals))),
                       word.substr(std::min(equals + 1, word.size())));
    if (word.size() == kernel.size()) return words;
    kernel.remove_prefix(word.size() + 1);
  }
}

template <typename T>
T NumberOf(const FieldDescriptor& field, std::string text) {
  const v1::Parameter& parameter = field.options().GetExtension(v1::parameter);
  const bool limited = parameter.most() > 0;
  const T least = limited ? static_cast<T>(parameter.least()) : std::numeric_limits<T>::lowest();
  const T most = limited ? static_cast<T>(parameter.most()) : std::numeric_limits<T>::max();
  const std::string problem = Number(least, most)(text);
  if (!problem.empty()) Refuse(Dashed(field.name()) + ": " + problem);
  T value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

int EnumOf(const FieldDescriptor& field, const std::string& text) {
  const auto& type = *field.enum_type();
  for (int i = 1; i < type.value_count(); ++i) {  // 0: the default
    if (Dashed(type.value(i)->name()) == Dashed(text)) return type.value(i)->number();
  }
  Refuse(Dashed(field.name()) + ": '" + text + "' is not one of " +
         NamesOf(
             type.value_count(), [&](int i) { return type.value(i); }, ", ", 1));
}

bool BoolOf(const FieldDescriptor& field, const std::string& text) {
  if (text != "true" && text != "false") {
    Refuse(Dashed(field.name()) + ": '" + text + "' is neither true nor false");
  }
  return text == "true";
}

void Set(const FieldDescriptor& field, const std::string& text, bool read_files, Message* kernel) {
  const auto& set = *kernel->GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return set.SetInt32(kernel, &field, NumberOf<int32_t>(field, text));
    case FieldDescriptor::CPPTYPE_UINT64:
      return set.SetUInt64(kernel, &field, NumberOf<uint64_t>(field, text));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set.SetDouble(kernel, &field, NumberOf<double>(field, text));
    case FieldDescriptor::CPPTYPE_BOOL:
      return set.SetBool(kernel, &field, BoolOf(field, text));
    case FieldDescriptor::CPPTYPE_ENUM:
      return field.is_repeated() ? set.AddEnumValue(kernel, &field, EnumOf(field, text))
                                 : set.SetEnumValue(kernel, &field, EnumOf(field, text));
    case FieldDescriptor::CPPTYPE_STRING:
      if (const std::string problem = Name()(text); !problem.empty()) {
        Refuse(Dashed(field.name()) + ": " + problem);
      }
      return set.SetString(kernel, &field, text);
    default:  // a tensor
      if (read_files) set.MutableMessage(kernel, &field)->CopyFrom(ReadTensor(text));
  }
}

template <typename Request>
void Apply(const std::string& kernel, bool read_files, Request* request) {
  if (kernel.empty()) return;
  const OneofDescriptor& kernels = KernelsOf<Request>();
  const auto words = WordsOf(kernel);
  const FieldDescriptor* chosen = nullptr;
  for (int i = 0; i < kernels.field_count(); ++i) {
    if (Dashed(kernels.field(i)->name()) == words[0].first) chosen = kernels.field(i);
  }
  if (chosen == nullptr) {
    Refuse("'" + words[0].first + "' is not one of " +
           NamesOf(
               kernels.field_count(), [&](int i) { return kernels.field(i); }, ", "));
  }
  Message* const message = request->GetReflection()->MutableMessage(request, chosen);
  const auto& type = *message->GetDescriptor();
  for (size_t i = 1; i < words.size(); ++i) {
    const FieldDescriptor* field = nullptr;
    for (int k = 0; k < type.field_count(); ++k) {
      if (Dashed(type.field(k)->name()) == words[i].first) field = type.field(k);
    }
    if (field == nullptr) {
      Refuse("'" + words[i].first + "' is not a parameter of " + words[0].first + ", which takes " +
             NamesOf(
                 type.field_count(), [&](int k) { return type.field(k); }, ", "));
    }
    Set(*field, words[i].second, read_files, message);
  }
}

// "clusters=1..65536 (100)".
std::string HelpOf(const FieldDescriptor& field) {
  const v1::Parameter& parameter = field.options().GetExtension(v1::parameter);
  std::string values;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    const auto& type = *field.enum_type();
    values = NamesOf(
        type.value_count(), [&](int i) { return type.value(i); }, "|", 1);
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    values = "false|true";
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    values = "NAME";
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    values = "FILE.npy";
  } else if (parameter.most() > 0) {
    values = FormatReal(parameter.least(), "%.0f") + ".." + FormatReal(parameter.most(), "%.0f");
  } else {
    values = "N";
  }
  return Dashed(field.name()) + "=" + values +
         (parameter.absent().empty() ? "" : " (" + parameter.absent() + ")");
}

}  // namespace

void AddKernelFlag(CLI::App* command, std::string* kernel) {
  std::string help =
      "Kernel and parameters: NAME or NAME,PARAMETER=VALUE,...; omitted parameters take the "
      "server's default, in parentheses or first";
  const OneofDescriptor& kernels = KernelsOf<v1::AttendRequest>();
  for (int i = 0; i < kernels.field_count(); ++i) {
    help += "\n" + Dashed(kernels.field(i)->name()) + ":";
    const auto& type = *kernels.field(i)->message_type();
    for (int k = 0; k < type.field_count(); ++k) {
      help += (k == 0 ? " " : ", ") + HelpOf(*type.field(k));
    }
  }
  AddOption(command, "Kernel", "--kernel", kernel, "KERNEL", help,
            CLI::Validator(
                [](std::string& text) -> std::string {
                  if (text.empty()) return "must not be empty";
                  CheckKernel(text);
                  return "";
                },
                ""));
}

void CheckKernel(const std::string& kernel) {
  v1::AttendRequest request;
  Apply(kernel, /*read_files=*/false, &request);
}

void ApplyKernel(const std::string& kernel, v1::AttendRequest* request) {
  Apply(kernel, /*read_files=*/true, request);
}
void ApplyKernel(const std::string& kernel, v1::EncodeRequest* request) {
  Apply(kernel, /*read_files=*/true, request);
}

bool IsKernel(std::string_view kernel, std::string_view name) {
  return WordsOf(kernel)[0].first == name;
}

bool HasParameter(std::string_view kernel, std::string_view parameter) {
  const auto words = WordsOf(kernel);
  return std::any_of(words.begin() + 1, words.end(),
                     [&](const auto& word) { return word.first == parameter; });
}

std::string ParametersText(const Message& kernel) {
  const auto& get = *kernel.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  get.ListFields(kernel, &fields);
  std::string text;
  const auto add = [&](const FieldDescriptor& field, const std::string& value) {
    text += (text.empty() ? "" : ",") + Dashed(field.name()) + "=" + value;
  };
  for (const FieldDescriptor* const field : fields) {
    if (field->is_repeated()) continue;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        add(*field, std::to_string(get.GetInt32(kernel, field)));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        add(*field, std::to_string(get.GetUInt64(kernel, field)));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        add(*field, FormatReal(get.GetDouble(kernel, field), "%g"));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        add(*field, get.GetBool(kernel, field) ? "true" : "false");
        break;
      case FieldDescriptor::CPPTYPE_ENUM: {
        // A server may know more values than this client.
        const int number = get.GetEnumValue(kernel, field);
        const EnumValueDescriptor* const value = field->enum_type()->FindValueByNumber(number);
        add(*field, value == nullptr ? std::to_string(number) : Dashed(value->name()));
        break;
      }
      case FieldDescriptor::CPPTYPE_STRING:
        add(*field, get.GetString(kernel, field));
        break;
      default:
        break;
    }
  }
  return text;
}

}  // namespace castor::cli
