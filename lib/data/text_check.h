// Whether a file is text: UTF-8 without NUL bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/source_file.h"

namespace fusionllm::data {

// Where `text` is no UTF-8, in bytes; npos: nowhere. A NUL counts as none, which text does not have. `whole`: nothing follows; else a
// sequence that the end cuts off is not held against it.
size_t FirstNotUtf8(absl::string_view text, bool whole);

struct NotText {
  std::string why;     // "it is compressed (gzip)", "byte 0x93 at offset 1,204 is not UTF-8"; empty: it is text, and no pointer to a file
  std::string remedy;  // "unpack it, ..."
};
// Why `file` is no text, to go by its first `bytes_max` bytes. Blocks. Errors: those of reading.
absl::StatusOr<NotText> WhyNotText(const base::SourceFile& file, int64_t bytes_max);

}  // namespace fusionllm::data
