// The cluster's authority in the controller's folder: `authority.pem`, its key and its certificate in one
// file for its owner alone, made once and never overwritten; beside it, while one follows another,
// `authority-next.pem`, which is trusted already, or `authority-old.pem`, which is trusted still; and
// `ca.pem`, what people and nodes may have of them. All of it waits for the disk.
#pragma once

#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/pki/pki.hpp"

namespace tutti::controller {

struct Authorities {
  pki::Authority signer;
  std::string next;  // certificate of the one that comes; "": none
  std::string old;   // certificate of the one that was; "": none

  // All that are trusted, the one that signs in front.
  std::string trusted() const { return signer.certificate + next + old; }
};

// Makes one where there is none.
Result<> make_authority_file(const std::string& folder, Instant now);
// Nothing if there is none: the folder is of an earlier version. Writes ca.pem where it is not as it should
// be.
Result<std::optional<Authorities>> read_authorities(const std::string& folder);

// The steps from one to another. What a step has done already stays done: one that a full disk has cut short
// is taken again. One at a time.

// One that is to follow, trusted from now on; refused while the one before is trusted still.
Result<> make_next_authority(const std::string& folder, Instant now);
// The next one signs from now on, and the one before it is trusted still.
Result<> use_next_authority(const std::string& folder);
// The old one is trusted no more.
Result<> drop_old_authority(const std::string& folder);

}  // namespace tutti::controller
