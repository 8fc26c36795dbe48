"""Where bytes lie: promises that layouts make to the passes behind layout assignment."""
