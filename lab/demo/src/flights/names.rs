//! Full names for the codes in the file.

/// The airline with this IATA code; empty for one that does not occur in the embedded file.
pub(super) fn carrier_name(code: &str) -> &'static str {
    match code {
        "9E" => "Endeavor Air",
        "AA" => "American Airlines",
        "AS" => "Alaska Airlines",
        "B6" => "JetBlue Airways",
        "DL" => "Delta Air Lines",
        "EV" => "ExpressJet Airlines",
        "F9" => "Frontier Airlines",
        "FL" => "AirTran Airways",
        "HA" => "Hawaiian Airlines",
        "MQ" => "Envoy Air",
        "OO" => "SkyWest Airlines",
        "UA" => "United Air Lines",
        "US" => "US Airways",
        "VX" => "Virgin America",
        "WN" => "Southwest Airlines",
        "YV" => "Mesa Airlines",
        _ => "",
    }
}

/// The airport with this IATA code; empty for one that does not occur in the embedded file.
pub(super) fn airport_name(code: &str) -> &'static str {
    match code {
        "EWR" => "Newark Liberty",
        "JFK" => "John F. Kennedy",
        "LGA" => "LaGuardia",
        _ => "",
    }
}
