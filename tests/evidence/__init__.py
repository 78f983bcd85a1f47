"""What must not change when the code is rearranged, frozen as digests: results, plans, words."""
