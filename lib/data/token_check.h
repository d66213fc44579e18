// Whether a file holds bare ids of tokens, and of which width: such a file says nothing of itself. Each function blocks on the disk and
// returns the errors of reading beside its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/source_file.h"
#include "lib/data/config.h"

namespace fusionllm::data {

inline constexpr char kBareIdsRemedy[] =
    "write bare ids by ids.astype('<u2').tofile(..), or '<u4' above 65,535 (docs/tasks/prepare-data.md)";

// The names of files that say a width, 32 or 16 bits, and those that do not.
bool IsWideName(absl::string_view path);    // .u32, .uint32
bool IsNarrowName(absl::string_view path);  // .u16, .uint16
bool IsEitherName(absl::string_view path);  // .bin

int64_t DecodeId(const std::byte* at, int64_t width);  // little-endian, of `width` bytes

// Bytes of one token of a file whose name does not say: 4 when its first tokens, read as 32 bits, all fit 16 bits, since the upper halves
// of tokens of 16 bits would be ids as well. nullopt: too little to tell.
absl::StatusOr<std::optional<int64_t>> WidthByContent(const base::SourceFile& file);

// InvalidArgument for a file that holds something else than ids, or something in front of them; also, where config.token_dtype names no
// width (who names it is believed), for one that looks like numbers of another type than its name says: fractions, 64 bits, 32 bits in a
// file called .u16. Messages name the file and what to do.
absl::Status CheckHoldsIds(const DatasetConfig& config, const base::SourceFile& file);

// Likewise for text or ids of 8 bits, in a file whose width is not named and that is read as ids of 16 bits.
absl::Status CheckNotBytes(const base::SourceFile& file);

}  // namespace fusionllm::data
