// Pieces of HTML and SVG text. Everything that comes from users or other machines goes through Escape. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace fusionllm::report {

// For text and for attribute values in double quotes; control characters that HTML forbids become U+FFFD.
std::string Escape(absl::string_view text);

// A number for a coordinate: short, never "nan" or an exponent.
std::string Coordinate(double value);

// Ticks at 1, 2 or 5 times a power of ten that cover [low, high], at most `most` and at least two; low < high, both finite.
std::vector<double> NiceTicks(double low, double high, int most);
// The shortest text that tells ticks of this distance apart.
std::string TickLabel(double value, double distance);

// "1.92 s", "85 ms", "12 µs". Other numbers: number_format.h.
std::string Seconds(double seconds);

// A table: the first row are the titles; a title that starts with '>' aligns its column to the right. Cells are HTML already.
std::string Table(const std::vector<std::vector<std::string>>& rows);

}  // namespace fusionllm::report
