// SPDX-License-Identifier: Apache-2.0
//
// Json: just enough of a reader for the golden files in tests/data: objects, arrays, strings
// without escapes, whole numbers, null. Anything else throws. Immutable once read.
#pragma once

#include <charconv>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ucmstore::test {

class Json {
 public:
  using Object = std::map<std::string, Json>;
  using Array = std::vector<Json>;

  [[nodiscard]] static Json Read(std::string_view text) {
    Reader reader{text};
    Json value = reader.Value();
    if (reader.Peek() != '\0') reader.Fail("something follows the value");
    return value;
  }

  [[nodiscard]] bool IsNull() const { return std::holds_alternative<std::monostate>(value_); }
  [[nodiscard]] const Object& object() const { return std::get<Object>(value_); }
  [[nodiscard]] const Array& array() const { return std::get<Array>(value_); }
  [[nodiscard]] const std::string& text() const { return std::get<std::string>(value_); }
  [[nodiscard]] std::int64_t number() const { return std::get<std::int64_t>(value_); }
  [[nodiscard]] const Json& operator[](const std::string& name) const { return object().at(name); }

  // The bytes that a string of hex digits stands for.
  [[nodiscard]] std::string bytes() const {
    std::string out;
    for (std::size_t at = 0; at < text().size(); at += 2) {
      const std::string pair = text().substr(at, 2);
      unsigned value = 0;
      const auto [end, error] = std::from_chars(pair.data(), pair.data() + 2, value, 16);
      if (error != std::errc{} || end != pair.data() + 2) throw std::runtime_error("json: no hex");
      out += static_cast<char>(value);
    }
    return out;
  }

 private:
  struct Reader {
    std::string_view text;
    std::size_t at = 0;

    [[noreturn]] void Fail(const std::string& why) const {
      throw std::runtime_error("json: at byte " + std::to_string(at) + ": " + why);
    }
    char Peek() {
      while (at < text.size() && std::string_view(" \t\r\n").contains(text[at])) ++at;
      return at < text.size() ? text[at] : '\0';
    }
    void Take(char c) {
      if (Peek() != c) Fail(std::string("no '") + c + "'");
      ++at;
    }
    // Calls `item` for each of a list of things between commas, up to `close`.
    template <typename Item>
    void List(char open, char close, Item item) {
      Take(open);
      if (Peek() != close) {
        for (item(); Peek() == ','; item()) Take(',');
      }
      Take(close);
    }
    std::string String() {
      Take('"');
      const std::size_t end = text.find_first_of("\"\\", at);
      if (end == std::string_view::npos || text[end] != '"')
        Fail("string with an escape or no end");
      std::string value(text.substr(at, end - at));
      at = end + 1;
      return value;
    }
    Json Value() {
      Json json;
      const char c = Peek();
      if (c == '{') {
        Object object;
        List('{', '}', [&] {
          std::string name = String();
          Take(':');
          object.emplace(std::move(name), Value());
        });
        json.value_ = std::move(object);
      } else if (c == '[') {
        Array array;
        List('[', ']', [&] { array.push_back(Value()); });
        json.value_ = std::move(array);
      } else if (c == '"') {
        json.value_ = String();
      } else if (text.substr(at, 4) == "null") {
        at += 4;
      } else {
        std::int64_t number = 0;
        const auto [end, error] =
            std::from_chars(text.data() + at, text.data() + text.size(), number);
        if (error != std::errc{}) Fail("no value");
        at = static_cast<std::size_t>(end - text.data());
        json.value_ = number;
      }
      return json;
    }
  };

  std::variant<std::monostate, std::int64_t, std::string, Array, Object> value_;
};

}  // namespace ucmstore::test
