// SPDX-License-Identifier: Apache-2.0
//
// The canonical text of a namespace, its fingerprint and folder name, and ids from an engine's own
// hashes. See namespace.h; the bytes are described in docs/identity.md.
#include "block_id/namespace.h"

#include <algorithm>

#include "base/hex.h"
#include "block_id/identity_fields.h"

namespace ucmstore {
namespace {

constexpr std::size_t kMaxName = 64;
constexpr std::size_t kMaxModelInLabel = 60;
constexpr std::size_t kFingerprintDigitsInLabel = 16;
constexpr std::uint32_t kMaxWidth = 1024;

// Locale-free, unlike <cctype>: a name means the same everywhere.
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }

bool IsFieldName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && IsLower(name.front()) &&
         std::ranges::all_of(name, [](char c) { return IsLower(c) || IsDigit(c) || c == '_'; });
}

void AppendEscaped(std::string& text, std::string_view value) {
  for (const char c : value) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (c == '\\') {
      text += "\\\\";
    } else if (c == '\n') {
      text += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      text += "\\x" + ToHex(std::span(&byte, 1));
    } else {
      text += c;
    }
  }
}

// Runs of anything else than [A-Za-z0-9._-] become one '-'. The end of a long name stays, since
// names are often paths; no '.' or '-' leads, so it is never hidden, an option, or a way upwards.
std::string Harmless(std::string_view model) {
  std::string text;
  for (const char c : model) {
    const bool good = IsLower(c) || IsUpper(c) || IsDigit(c) || c == '.' || c == '_' || c == '-';
    if (good) {
      text += c;
    } else if (!text.ends_with('-')) {
      text += '-';
    }
  }
  if (text.size() > kMaxModelInLabel) text.erase(0, text.size() - kMaxModelInLabel);
  text.erase(0, text.find_first_not_of(".-"));
  return text.empty() ? "model" : text;
}

Status Refuse(std::string_view text) { return Status::Error(Code::kInvalidArgument, text); }

}  // namespace

Result<Namespace> Namespace::FromFields(const std::map<std::string, std::string>& fields) {
  if (fields.empty()) {
    return std::unexpected(
        Refuse("namespace: no fields; give at least what the model is, such as model and dtype"));
  }
  Namespace made;
  for (const auto& [name, value] : fields) {
    if (!IsFieldName(name)) {
      std::string shown;
      AppendEscaped(shown, name);
      return std::unexpected(Refuse("namespace: field name \"" + shown +
                                    "\" is not [a-z][a-z0-9_]* of at most 64 characters"));
    }
    if (value.find('\0') != std::string::npos) {
      return std::unexpected(Refuse("namespace: field " + name + ": value holds a NUL"));
    }
    made.text_ += name;
    made.text_ += ": ";
    AppendEscaped(made.text_, value);
    made.text_ += '\n';
    if (made.text_.size() > kMaxText) {
      return std::unexpected(Refuse("namespace: field " + name + ": the fields are longer than " +
                                    std::to_string(kMaxText) +
                                    " bytes of text; give a digest instead of the thing itself"));
    }
  }
  made.fields_ = fields;
  made.fingerprint_ = Sha256Of(made.text_);
  const auto model = fields.find("model");
  made.label_ = Harmless(model == fields.end() ? std::string_view{} : model->second);
  made.label_ += '-';
  made.label_ += ToHex(made.fingerprint_).substr(0, kFingerprintDigitsInLabel);
  return made;
}

Status Namespace::Derive(std::span<const std::uint8_t> hashes, std::uint32_t width,
                         std::uint32_t every, std::string_view tag, std::span<BlockId> ids) const {
  if (width == 0 || width > kMaxWidth) {
    return Refuse("derive: width is " + std::to_string(width) +
                  ", must be 1 ..= " + std::to_string(kMaxWidth) + " bytes");
  }
  if (every == 0) return Refuse("derive: every is 0, must be at least 1");
  if (hashes.size() % width != 0) {
    return Refuse("derive: " + std::to_string(hashes.size()) +
                  " bytes of hashes are not a multiple of the width, " + std::to_string(width));
  }
  const std::size_t count = hashes.size() / width / every;
  if (ids.size() < count) {
    return Refuse("derive: room for " + std::to_string(ids.size()) + " ids, " +
                  std::to_string(count) + " are due");
  }

  Sha256 context;
  AddField(context, IdentityField::kDomain, kDeriveDomain);
  AddField(context, IdentityField::kFingerprint, std::as_bytes(std::span(fingerprint_)));
  AddField(context, IdentityField::kTag, tag);
  AddField(context, IdentityField::kWidth, width);
  AddField(context, IdentityField::kEvery, every);
  const Sha256Digest digest = context.Finish();
  Sha256 begin;
  begin.Update(std::as_bytes(std::span(digest)));

  const auto bytes = std::as_bytes(hashes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t last_of_group = i * every + every - 1;
    Sha256 hash = begin;
    hash.Update(bytes.subspan(last_of_group * width, width));
    ids[i] = FinishId(hash);
  }
  return Status::Ok();
}

}  // namespace ucmstore
