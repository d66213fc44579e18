// Windows of tokens: raw bytes of any files (kind text) or ready token ids (kind tokens).
//
// Files are concatenated in the order of ExpandPaths, nothing between them, and cut into windows of T tokens with stride T; the targets are
// the same window one token further, so n tokens make floor((n - 1) / T) windows. What is left at the end is not used.
//
// Kind text: what is no UTF-8, or has a NUL byte, is hardly meant (archives, pictures, text of another encoding). A file that is named is
// refused then; of those found in a folder it is skipped, which files() tells. Looked at are the first kTextCheckedAtOpen bytes of the data
// and the first kTextCheckedOfEach of every file behind them. DatasetConfig::encoding bytes takes anything.
//
// Kind tokens: little-endian ids without a header. The width is the option token_dtype, else the extension: .u32 and .uint32 are 32 bits,
// .u16 and .uint16 are 16 bits. Both are called .bin in the field: that is 32 bits when the vocabulary has more than 65536 ids, or when the
// upper halves of the first tokens, read as 32 bits, are all zero (16-bit text with every other id 0 does not occur); else 16 bits. In a
// folder only files with these extensions count. 32-bit ids must be below 2^31. What is refused as no ids, or as ids of another type than
// the name says: token_check.h. files().ids says what was found.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "lib/data/config.h"
#include "lib/data/dataset.h"

namespace fusionllm::data {

inline constexpr int64_t kMaxSequenceLength = int64_t{1} << 24;
// Ids are checked against the vocabulary whenever they are read, and the first kTokensCheckedAtOpen of them when the dataset is opened, so
// that a wrong vocabulary is an error before the first step and opening a huge file stays quick.
inline constexpr int64_t kTokensCheckedAtOpen = int64_t{1} << 25;

inline constexpr int64_t kTextCheckedAtOpen = int64_t{1} << 25;
inline constexpr int64_t kTextCheckedOfEach = 8192;

// Errors: InvalidArgument for a bad sequence length or dtype, a file that is no text or not a whole number of tokens, less than one window,
// an id at or above vocabulary_size (names file, byte offset, id).
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokenWindows(const DatasetConfig& config);

}  // namespace fusionllm::data
