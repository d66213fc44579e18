// What a file is, to go by its first bytes: for who finds something else than was to be read, and for who cannot tell it from what is to be
// read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/source_file.h"

namespace fusionllm::base {

struct FileFormat {
  enum class Kind : uint8_t {
    kPointer,     // stands for a file that was not fetched
    kPage,        // an answer of a web server
    kCompressed,  // also archives
    kZip,         // an archive, or what torch.save writes
    kText,        // in an encoding that is not UTF-8
    kOther,       // arrays, tables, models, pictures
  };
  Kind kind = Kind::kOther;
  absl::string_view name;           // completes "it is ..": "a pointer of Git LFS"
  absl::string_view remedy;         // an imperative: "unpack it"; empty: none fits every use
  absl::string_view encoding = {};  // of kText, as iconv calls it
  // No number or text begins so by chance: four bytes or more are compared that mean nothing else.
  bool is_certain = true;
};

inline constexpr absl::string_view kSafetensorsName = "a safetensors file";

// So much of a file, or all of a shorter one, tells each format.
inline constexpr size_t kFormatPrefixBytes = 512;
// A pointer is no longer: what begins like one and is longer is a text about it.
inline constexpr int64_t kMaxPointerBytes = 1024;

// The format of a file of `file_bytes` bytes that begins with `front`; nullptr: none that is known, such as plain text. Pure.
const FileFormat* FormatOf(absl::string_view front, int64_t file_bytes);
// Likewise of one that is read here. Blocks. Errors: those of SourceFile::ReadAt.
absl::StatusOr<const FileFormat*> FormatOf(const SourceFile& file);

}  // namespace fusionllm::base
