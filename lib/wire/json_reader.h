// Reads JSON from outside: every field has a type, a range and a path for the message, and sizes are bounded before anything is built.
// Internal to lib/wire: other libraries see the structs that its users fill, not JSON.
//
// The first error sticks in the shared status and later calls leave their targets alone, so a caller reads all fields and checks once.
// Unknown keys are ignored: a newer peer may add fields. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::wire {

inline constexpr size_t kMaxDocumentBytes = size_t{64} << 20;
inline constexpr int kMaxNesting = 16;
inline constexpr size_t kMaxValues = 3'000'000;  // more than fit into kMaxDocumentBytes of what this library writes
inline constexpr size_t kMaxNameBytes = 512;

// Errors: InvalidArgument "NAME: ..." with the byte offset of a syntax error; text beyond kMaxDocumentBytes, kMaxNesting or kMaxValues.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view document_name);

// Text form: sorted keys, shortest numbers that read back as the same double, one line.
std::string PrintJson(const nlohmann::json& value);

class ObjectReader {
 public:
  enum Presence { kRequired, kOptional };

  // `object`, `status` must outlive the reader. An error when `object` is none.
  ObjectReader(const nlohmann::json& object, std::string path, absl::Status& status);

  bool Has(const char* key) const;
  // `key`, or `alias` where only that is there: its name in the previous release. Then a warning is logged, once a process for each name.
  const char* KeyOrAlias(const char* key, const char* alias) const;
  void Number(const char* key, double& out, double min, double max, Presence presence = kRequired);
  void Integer(const char* key, int64_t& out, int64_t min, int64_t max, Presence presence = kRequired);
  void Integer(const char* key, int& out, int min, int max, Presence presence = kRequired);
  void Bool(const char* key, bool& out, Presence presence = kRequired);
  void Text(const char* key, std::string& out, size_t max_bytes = kMaxNameBytes, Presence presence = kRequired);
  void Texts(const char* key, std::vector<std::string>& out, size_t max_count, Presence presence = kRequired);
  void Integers(const char* key, std::vector<int>& out, size_t max_count, int min, int max);
  void Objects(const char* key, size_t max_count, const std::function<void(ObjectReader&)>& read, Presence presence = kRequired);
  void Object(const char* key, const std::function<void(ObjectReader&)>& read, Presence presence = kRequired);
  // Every member of the object under `key`, in the order of names.
  void Members(const char* key, size_t max_count, const std::function<void(const std::string&, ObjectReader&)>& read,
               Presence presence = kRequired);

  // Records "PATH.KEY: MESSAGE" unless an error is there already.
  void Fail(const char* key, absl::string_view message);
  bool ok() const { return status_.ok(); }

 private:
  const nlohmann::json* Find(const char* key, Presence presence);

  const nlohmann::json& object_;
  const std::string path_;
  absl::Status& status_;
};

}  // namespace fusionllm::wire
