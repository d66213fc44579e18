#include "lib/job/data_rules.h"

#include "absl/strings/str_cat.h"

namespace fusionllm::job {
namespace {

bool HoldsOut(const Data& data) { return data.validation.has_value() && data.validation->fraction.has_value(); }

}  // namespace

DataRules DataRulesOf(const Data& data) {
  DataRules rules;
  if (data.encoding) rules.encoding = *data.encoding;
  if (HoldsOut(data) && data.validation->split) rules.split = *data.validation->split;
  return rules;
}

DataRules DataRulesOfCheckpoint(const Data& data) {
  DataRules rules;
  if (data.kind == DataKind::kText) rules.encoding = data.encoding.value_or(TextEncoding::kBytes);
  if (HoldsOut(data)) rules.split = data.validation->split.value_or(Split::kEnd);
  return rules;
}

void FixDataRules(const DataRules& rules, Data& data) {
  if (data.kind == DataKind::kText && !data.encoding) data.encoding = rules.encoding;
  if (HoldsOut(data) && !data.validation->split) data.validation->split = rules.split;
}

std::vector<std::string> FieldsOfRules(const DataRules& rules, const Data& data) {
  std::vector<std::string> fields;
  if (rules.encoding != TextEncoding::kUtf8 && !data.encoding) {
    fields.push_back(absl::StrCat("spec.data.encoding: ", ToString(rules.encoding)));
  }
  if (rules.split != Split::kEven && data.validation && !data.validation->split) {
    fields.push_back(absl::StrCat("spec.data.validation.split: ", ToString(rules.split)));
  }
  return fields;
}

}  // namespace fusionllm::job
