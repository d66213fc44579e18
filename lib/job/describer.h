// Visitor that turns a field table into data (schema.h), for generators of documents and schemas. A pure function of the type.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/job/printer.h"
#include "lib/job/schema.h"

namespace fusionllm::job {

template <class T>
constexpr FieldType ScalarType() {
  if constexpr (std::is_same_v<T, bool>) return FieldType::kBool;
  if constexpr (std::is_same_v<T, int64_t>) return FieldType::kInteger;
  if constexpr (std::is_same_v<T, double>) return FieldType::kNumber;
  if constexpr (std::is_same_v<T, absl::Time>) return FieldType::kTime;
  if constexpr (std::is_same_v<T, Bandwidth>) return FieldType::kBandwidth;
  if constexpr (std::is_same_v<T, ByteSize>) return FieldType::kSize;
  if constexpr (std::is_same_v<T, Duration>) return FieldType::kDuration;
  if constexpr (kIsEnum<T>) return FieldType::kEnum;
  return FieldType::kText;
}

class Describer {
 public:
  static constexpr bool kFillsIn = false;

  template <class T>
  static FieldSchema Root() {
    T value;
    Describer describer;
    Visit(describer, value);
    FieldSchema root;
    root.children = std::move(describer.fields_);
    return root;
  }

  void Constant(absl::string_view name, absl::string_view value) {
    FieldSchema& field = fields_.emplace_back();
    field.name = std::string(name);
    field.type = FieldType::kText;
    field.rule.required = true;
    field.constant = std::string(value);
    field.doc = "Always this.";
  }

  template <class T>
  void Field(absl::string_view name, T& value, const Rule& rule, absl::string_view doc) {
    FieldSchema field = Describe(value, rule);
    field.name = std::string(name);
    field.doc = std::string(doc);
    fields_.push_back(std::move(field));
  }

 private:
  template <class T>
  static FieldSchema Describe(T& value, const Rule& rule) {
    FieldSchema field;
    field.rule = rule;
    field.rule.applies = true;
    if constexpr (IsOptional<T>::value) {
      typename T::value_type inner{};
      field = Describe(inner, rule);
      field.optional = true;
      field.default_text.clear();
    } else if constexpr (IsVector<T>::value) {
      typename T::value_type element{};
      field.type = FieldType::kList;
      field.children.push_back(Describe(element, rule));
      field.children[0].default_text.clear();
    } else if constexpr (std::is_same_v<T, RawExtension>) {
      field.type = FieldType::kAny;
      field.optional = true;
    } else if constexpr (kIsScalar<T>) {
      field.type = ScalarType<T>();
      if constexpr (kIsEnum<T>) field.choices = EnumChoices<T>();
      if constexpr (!std::is_same_v<T, absl::Time>) {
        const std::string text = ScalarText(value, rule);
        if (!rule.required && text != "\"\"") field.default_text = text;
      }
    } else {
      Describer inner;
      Visit(inner, value);
      field.children = std::move(inner.fields_);
    }
    return field;
  }

  std::vector<FieldSchema> fields_;
};

}  // namespace fusionllm::job
