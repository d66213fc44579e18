// Messages of the gradient of one use of a tied parameter: a matrix of which many rows may be zero, since the gradient of an embedding has
// none but those of the tokens that occurred. Rows of zeros are left out where that makes the message shorter, which loses nothing.
//
// The rows, one after the other, as a forward message of codec.h. Then, unless it has all of them, a bitmap with a bit for each row, the
// lowest of the first byte first, zeros behind the last. Then
//   offset 0  u8   version (1)
//          1  u8   0: all rows, 1: those of the bitmap
//          2  u16  0
//          4  u32  rows of the message
//
// A lossy codec keeps what its messages lose (error feedback) and adds it to the next one that has the row: unlike an activation's, the
// residual belongs to what the next message is about, the same parameter. The sender goes on with what the receivers decode, so that all
// of them add up the same bits.
//
// Messages are little-endian; a decoder trusts nothing in them. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "lib/compression/spec.h"

namespace fusionllm::compression {

// Encodes `values`, rows of `columns` each. The codec is exact, fp16, bf16, int8 or int4; error feedback is always on, whatever the spec
// says. `residual`: what earlier messages lost, empty before the first; null for an exact codec. Lossy, `values` become what DecodeRows
// makes of the message. A value that the codec refuses (codec.h), alone or with its residual, makes the message exact: what adds the
// gradients up then finds and names it; values and residual stay.
// Errors: InvalidArgument for another codec, more than kMaxElements, or values that are no whole rows.
absl::Status EncodeRows(const CodecSpec& spec, size_t columns, std::span<float> values, std::vector<float>* residual,
                        std::vector<std::byte>* out);

// Fills `out`; rows that the message leaves out become zero. Errors: InvalidArgument for whatever is wrong with the message. *out is then
// unspecified. Memory allocated: Decode's (codec.h), and the bitmap's, an eighth of a byte for each row.
absl::Status DecodeRows(size_t columns, std::span<const std::byte> message, std::span<float> out);

// The greatest message that EncodeRows makes of so many rows, of which at most `occupied` are not zero.
int64_t EncodedRowsBytes(const CodecSpec& spec, int64_t rows, int64_t columns, int64_t occupied);

}  // namespace fusionllm::compression
