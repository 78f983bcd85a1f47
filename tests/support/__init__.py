"""Cases, fakes, emulators and scripts that several tests share."""
