"""Where bytes lie: promises that layouts make to the passes after layout assignment."""
