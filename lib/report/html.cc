#include "lib/report/html.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::report {
std::string Escape(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        const auto byte = static_cast<unsigned char>(c);
        if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
          out += "\xEF\xBF\xBD";
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string Coordinate(double value) {
  if (!std::isfinite(value)) return "0";
  std::string text = absl::StrFormat("%.2f", std::clamp(value, -1e7, 1e7));
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::vector<double> NiceTicks(double low, double high, int most) {
  const double least = (high - low) / std::max(most - 1, 1);
  const double power = std::pow(10, std::floor(std::log10(least)));
  double distance = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) {
      distance = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (double tick = std::floor(low / distance) * distance; ticks.size() < 100; tick += distance) {
    ticks.push_back(std::abs(tick) < distance * 1e-9 ? 0 : tick);
    if (tick >= high - distance * 1e-9) break;
  }
  return ticks;
}

std::string TickLabel(double value, double distance) {
  const int digits = std::clamp(static_cast<int>(-std::floor(std::log10(distance) + 1e-9)), 0, 9);
  return absl::StrFormat("%.*f", digits, value);
}

std::string Seconds(double seconds) {
  if (!std::isfinite(seconds)) return "–";
  if (std::abs(seconds) >= 99.5) return absl::StrFormat("%.0f s", seconds);
  if (std::abs(seconds) >= 0.9995) return absl::StrFormat("%.3g s", seconds);
  if (std::abs(seconds) >= 0.9995e-3) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return std::abs(seconds) < 1e-9 ? "0 s" : absl::StrFormat("%.3g µs", seconds * 1e6);  // less is what rounding leaves
}

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "";
  std::string out = "<div class=\"scroll\"><table>";
  std::vector<bool> right;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (r == 1) out += "<tbody>";
    out += r == 0 ? "<thead><tr>" : "<tr>";
    for (size_t c = 0; c < rows[r].size(); ++c) {
      absl::string_view cell = rows[r][c];
      if (r == 0) {
        right.push_back(!cell.empty() && cell.front() == '>');
        if (right.back()) cell.remove_prefix(1);
      }
      const bool aligned = c < right.size() && right[c];
      absl::StrAppend(&out, r == 0 ? "<th scope=\"col\"" : "<td", aligned ? " class=\"r\">" : ">", cell, r == 0 ? "</th>" : "</td>");
    }
    out += r == 0 ? "</tr></thead>" : "</tr>";
  }
  absl::StrAppend(&out, rows.size() > 1 ? "</tbody>" : "", "</table></div>\n");
  return out;
}

}  // namespace fusionllm::report
