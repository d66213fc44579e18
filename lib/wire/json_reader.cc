#include "lib/wire/json_reader.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "lib/base/json_text.h"
#include "lib/base/log.h"

namespace fusionllm::wire {

using nlohmann::json;

absl::StatusOr<json> ParseJson(absl::string_view text, absl::string_view document_name) {
  if (text.size() > kMaxDocumentBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %d bytes, the limit is %d", document_name, text.size(), kMaxDocumentBytes));
  }
  if (const std::string beyond = base::BeyondJsonLimits(text, {.depth = kMaxNesting, .values = kMaxValues}); !beyond.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(document_name, ": ", beyond));
  }
  try {
    return json::parse(text.begin(), text.end());  // tidy-allow: json because errors have their place, and the limits were looked at
  } catch (const json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: byte %d: not JSON", document_name, error.byte));
  } catch (const json::exception& error) {  // a number beyond any double
    return absl::InvalidArgumentError(absl::StrCat(document_name, ": ", error.what()));
  }
}

std::string PrintJson(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

ObjectReader::ObjectReader(const json& object, std::string path, absl::Status& status)
    : object_(object), path_(std::move(path)), status_(status) {
  if (status_.ok() && !object_.is_object()) status_ = absl::InvalidArgumentError(absl::StrCat(path_, ": must be an object"));
}

bool ObjectReader::Has(const char* key) const { return object_.is_object() && object_.contains(key); }

const char* ObjectReader::KeyOrAlias(const char* key, const char* alias) const {
  if (Has(key) || !Has(alias)) return key;
  static absl::Mutex mutex(absl::kConstInit);
  static auto* const warned = new std::set<std::string>;
  const absl::MutexLock lock(&mutex);
  if (warned->insert(alias).second) {
    base::Log(base::LogLevel::kWarning,
              absl::StrCat(path_, ".", alias, " is called ", key, " now; the former name is read in this release only"));
  }
  return alias;
}

void ObjectReader::Fail(const char* key, absl::string_view message) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(path_, ".", key, ": ", message));
}

const json* ObjectReader::Find(const char* key, Presence presence) {
  if (!status_.ok()) return nullptr;
  const auto found = object_.find(key);
  if (found != object_.end()) return &*found;
  if (presence == kRequired) Fail(key, "is missing");
  return nullptr;
}

void ObjectReader::Number(const char* key, double& out, double min, double max, Presence presence) {
  const json* value = Find(key, presence);
  if (value == nullptr) return;
  if (!value->is_number()) return Fail(key, "must be a number");
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < min || number > max) {
    return Fail(key, absl::StrFormat("%g is not between %g and %g", number, min, max));
  }
  out = number;
}

void ObjectReader::Integer(const char* key, int64_t& out, int64_t min, int64_t max, Presence presence) {
  const json* value = Find(key, presence);
  if (value == nullptr) return;
  if (!value->is_number_integer()) return Fail(key, "must be a whole number");
  // An unsigned number beyond the signed range would wrap around in get<int64_t>.
  const bool beyond = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  const int64_t number = beyond ? INT64_MAX : value->get<int64_t>();
  if (beyond || number < min || number > max) return Fail(key, absl::StrFormat("%d is not between %d and %d", number, min, max));
  out = number;
}

void ObjectReader::Integer(const char* key, int& out, int min, int max, Presence presence) {
  int64_t wide = out;
  Integer(key, wide, int64_t{min}, int64_t{max}, presence);
  out = static_cast<int>(wide);
}

void ObjectReader::Bool(const char* key, bool& out, Presence presence) {
  const json* value = Find(key, presence);
  if (value == nullptr) return;
  if (!value->is_boolean()) return Fail(key, "must be true or false");
  out = value->get<bool>();
}

void ObjectReader::Text(const char* key, std::string& out, size_t max_bytes, Presence presence) {
  const json* value = Find(key, presence);
  if (value == nullptr) return;
  if (!value->is_string()) return Fail(key, "must be text");
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > max_bytes) return Fail(key, absl::StrFormat("%d bytes of text, the limit is %d", text.size(), max_bytes));
  out = text;
}

void ObjectReader::Texts(const char* key, std::vector<std::string>& out, size_t max_count, Presence presence) {
  const json* value = Find(key, presence);
  if (value == nullptr) return;
  if (!value->is_array()) return Fail(key, "must be a list");
  if (value->size() > max_count) return Fail(key, absl::StrFormat("%d entries, the limit is %d", value->size(), max_count));
  out.clear();
  for (const json& entry : *value) {
    if (!entry.is_string() || entry.get_ref<const std::string&>().size() > 16 * kMaxNameBytes) {
      return Fail(key, absl::StrFormat("entry %d must be a short text", out.size()));
    }
    out.push_back(entry.get<std::string>());
  }
}

void ObjectReader::Integers(const char* key, std::vector<int>& out, size_t max_count, int min, int max) {
  const json* value = Find(key, kRequired);
  if (value == nullptr) return;
  if (!value->is_array()) return Fail(key, "must be a list");
  if (value->size() > max_count) return Fail(key, absl::StrFormat("%d entries, the limit is %d", value->size(), max_count));
  out.clear();
  for (const json& entry : *value) {
    if (!entry.is_number_integer() || entry.get<double>() < min || entry.get<double>() > max) {
      return Fail(key, absl::StrFormat("entry %d is not a whole number between %d and %d", out.size(), min, max));
    }
    out.push_back(entry.get<int>());
  }
}

void ObjectReader::Objects(const char* key, size_t max_count, const std::function<void(ObjectReader&)>& read, Presence presence) {
  const json* value = Find(key, presence);
  if (value == nullptr) return;
  if (!value->is_array()) return Fail(key, "must be a list");
  if (value->size() > max_count) return Fail(key, absl::StrFormat("%d entries, the limit is %d", value->size(), max_count));
  for (size_t i = 0; i < value->size() && status_.ok(); ++i) {
    ObjectReader entry((*value)[i], absl::StrCat(path_, ".", key, "[", i, "]"), status_);
    if (status_.ok()) read(entry);
  }
}

void ObjectReader::Object(const char* key, const std::function<void(ObjectReader&)>& read, Presence presence) {
  const json* value = Find(key, presence);
  if (value == nullptr) return;
  ObjectReader entry(*value, absl::StrCat(path_, ".", key), status_);
  if (status_.ok()) read(entry);
}

void ObjectReader::Members(const char* key, size_t max_count, const std::function<void(const std::string&, ObjectReader&)>& read,
                           Presence presence) {
  const json* value = Find(key, presence);
  if (value == nullptr) return;
  if (!value->is_object()) return Fail(key, "must be an object");
  if (value->size() > max_count) return Fail(key, absl::StrFormat("%d entries, the limit is %d", value->size(), max_count));
  for (auto member = value->begin(); member != value->end() && status_.ok(); ++member) {
    ObjectReader entry(member.value(), absl::StrCat(path_, ".", key, "[\"", member.key(), "\"]"), status_);
    if (status_.ok()) read(member.key(), entry);
  }
}

}  // namespace fusionllm::wire
