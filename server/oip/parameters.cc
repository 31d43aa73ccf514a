#include "server/oip/parameters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "castor/v1/encoder.pb.h"
#include "engine/base/error.h"

namespace castor::server::oip {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Names reserved by the protocol, and the only one of them that may be sent.
constexpr std::string_view kReserved = "triton_";
constexpr std::string_view kFinalResponse = "triton_enable_empty_final_response";
// Fields of castor.v1 for which the protocol has its own form.
constexpr std::string_view kNotParameters[] = {"request_id", "model", "output", "timeout_ms"};

template <typename Names>
bool IsIn(std::string_view name, const Names& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

absl::Status Bad(std::string_view key, std::string_view problem) {
  return InvalidField("parameters." + std::string(key), problem);
}

template <typename T>
std::optional<T> Read(std::string_view text) {
  T value{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> DoubleOf(const wire::InferParameter& parameter) {
  if (const auto* v = std::get_if<double>(&parameter.choice)) return *v;
  if (const auto* v = std::get_if<int64_t>(&parameter.choice)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<uint64_t>(&parameter.choice)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<wire::Text>(&parameter.choice)) return Read<double>(*v);
  return std::nullopt;
}

// Whole numbers of T's range.
template <typename T>
std::optional<T> IntegerOf(const wire::InferParameter& parameter) {
  if (const auto* v = std::get_if<int64_t>(&parameter.choice)) {
    if (std::in_range<T>(*v)) return static_cast<T>(*v);
  } else if (const auto* u = std::get_if<uint64_t>(&parameter.choice)) {
    if (std::in_range<T>(*u)) return static_cast<T>(*u);
  } else if (const auto* text = std::get_if<wire::Text>(&parameter.choice)) {
    return Read<T>(*text);
  }
  return std::nullopt;
}

std::optional<bool> BoolOf(const wire::InferParameter& parameter) {
  if (const auto* v = std::get_if<bool>(&parameter.choice)) return *v;
  if (const auto* text = std::get_if<wire::Text>(&parameter.choice)) {
    if (*text == "true") return true;
    if (*text == "false") return false;
  }
  return std::nullopt;
}

std::optional<int> EnumOf(const wire::InferParameter& parameter, const FieldDescriptor& field) {
  const EnumValueDescriptor* value = nullptr;
  if (const auto* text = std::get_if<wire::Text>(&parameter.choice)) {
    std::string name(*text);
    for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    value = field.enum_type()->FindValueByName(name);
  } else if (const auto number = IntegerOf<int>(parameter)) {
    value = field.enum_type()->FindValueByNumber(*number);
  }
  return value == nullptr ? std::nullopt : std::optional<int>(value->number());
}

// False if the value does not fit the field.
bool Store(const wire::InferParameter& parameter, const FieldDescriptor* field, Message* message) {
  const Reflection& fields = *message->GetReflection();
  const auto store = [&](const auto& value, auto set) {
    if (value.has_value()) (fields.*set)(message, field, *value);
    return value.has_value();
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return store(BoolOf(parameter), &Reflection::SetBool);
    case FieldDescriptor::CPPTYPE_INT32:
      return store(IntegerOf<int32_t>(parameter), &Reflection::SetInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return store(IntegerOf<int64_t>(parameter), &Reflection::SetInt64);
    case FieldDescriptor::CPPTYPE_UINT64:
      return store(IntegerOf<uint64_t>(parameter), &Reflection::SetUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return store(DoubleOf(parameter), &Reflection::SetDouble);
    case FieldDescriptor::CPPTYPE_ENUM:
      return store(EnumOf(parameter, *field), &Reflection::SetEnumValue);
    case FieldDescriptor::CPPTYPE_STRING: {
      const auto* text = std::get_if<wire::Text>(&parameter.choice);
      if (text != nullptr) fields.SetString(message, field, std::string(*text));
      return text != nullptr;
    }
    default:
      return false;
  }
}

const FieldDescriptor* FieldOf(std::string_view name, const Descriptor& message) {
  const FieldDescriptor* const field = message.FindFieldByName(std::string(name));
  if (field == nullptr || field->is_repeated() ||
      field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return nullptr;
  }
  return field;
}
const FieldDescriptor* FieldOf(std::string_view name, const Message& message) {
  return FieldOf(name, *message.GetDescriptor());
}

// The kernel's own message within `message`.
absl::Status ChooseKernel(const wire::InferParameter& parameter, Message* message,
                          Message** kernel) {
  const auto* name = std::get_if<wire::Text>(&parameter.choice);
  const auto* const kernels = message->GetDescriptor()->FindOneofByName("kernel");
  std::string names;
  for (int i = 0; i < kernels->field_count(); ++i) {
    const FieldDescriptor* const field = kernels->field(i);
    if (name != nullptr && field->name() == *name) {
      *kernel = message->GetReflection()->MutableMessage(message, field);
      return absl::OkStatus();
    }
    names += (names.empty() ? "" : ", ") + field->name();
  }
  return Bad("attention", "must be one of " + names);
}

// The kernel that has such a parameter, or nullptr.
const FieldDescriptor* KernelWith(std::string_view key, const Message& message) {
  const auto* const kernels = message.GetDescriptor()->FindOneofByName("kernel");
  for (int i = 0; i < kernels->field_count(); ++i) {
    const FieldDescriptor* const kernel = kernels->field(i);
    if (FieldOf(key, *kernel->message_type()) != nullptr) return kernel;
  }
  return nullptr;
}

// 1 is the highest, 0 the default.
absl::Status SetPriority(const wire::ParameterEntry& parameter, Message* message) {
  const auto level = IntegerOf<int64_t>(parameter.value);
  if (!level.has_value()) return SetField(parameter, "priority", message);
  if (*level < 0) return Bad("priority", "is negative");
  if (*level == 0) return absl::OkStatus();
  const v1::Priority priority = *level == 1 ? v1::HIGH : *level == 2 ? v1::NORMAL : v1::LOW;
  message->GetReflection()->SetEnumValue(message, FieldOf("priority", *message), priority);
  return absl::OkStatus();
}

absl::Status SetTimeout(const wire::InferParameter& parameter, Message* message) {
  const auto us = IntegerOf<int64_t>(parameter);
  if (!us.has_value() || *us < 0) return Bad("timeout", "is not a number of microseconds");
  const int64_t ms = *us / 1000 + (*us % 1000 != 0);
  message->GetReflection()->SetInt32(
      message, FieldOf("timeout_ms", *message),
      static_cast<int32_t>(std::min<int64_t>(ms, std::numeric_limits<int32_t>::max())));
  return absl::OkStatus();
}

}  // namespace

const wire::InferParameter* FindParameter(const Parameters& parameters, std::string_view key) {
  const auto found = std::find_if(parameters.rbegin(), parameters.rend(),
                                  [&](const wire::ParameterEntry& p) { return p.key == key; });
  return found == parameters.rend() ? nullptr : &found->value;
}

absl::Status SetField(const wire::ParameterEntry& parameter, std::string_view field,
                      Message* message) {
  const FieldDescriptor* const found = FieldOf(field, *message);
  if (found == nullptr) return Bad(parameter.key, "is not a parameter of this model");
  if (Store(parameter.value, found, message)) return absl::OkStatus();
  std::string problem = std::string("is not a value of type ") + found->cpp_type_name();
  if (found->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    problem = "must be one of";
    for (int i = 0; i < found->enum_type()->value_count(); ++i) {
      problem += " " + found->enum_type()->value(i)->name();
    }
  }
  return Bad(parameter.key, problem);
}

absl::Status SetFields(const Parameters& parameters, Message* message) {
  Message* kernel = nullptr;
  if (const auto* name = FindParameter(parameters, "attention")) {
    if (absl::Status s = ChooseKernel(*name, message, &kernel); !s.ok()) return s;
  }
  for (const wire::ParameterEntry& parameter : parameters) {
    const std::string_view key = parameter.key;
    absl::Status status;
    if (key == "attention" || key == kFinalResponse) continue;
    if (key.starts_with(kReserved)) {
      status = Bad(key, "is reserved by the protocol");
    } else if (key == "priority") {
      status = SetPriority(parameter, message);
    } else if (key == "timeout") {
      status = SetTimeout(parameter.value, message);
    } else if (kernel != nullptr && FieldOf(key, *kernel) != nullptr) {
      status = SetField(parameter, key, kernel);
    } else if (FieldOf(key, *message) != nullptr && !IsIn(key, kNotParameters)) {
      status = SetField(parameter, key, message);
    } else if (const FieldDescriptor* const other = KernelWith(key, *message)) {
      status = Bad(key, "belongs to another `attention`, such as " + other->name());
    }  // else another server's parameter, which is ignored
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace castor::server::oip
